//! `./x dist`: everything needed to run Nacre without this source tree.

use crate::step::program;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::fs;

/// Settings of every unit: nothing needs root, and only the data directory is writable.
const HARDENED: &str = "\
User=nacre
Group=nacre
StateDirectory=nacre
# A store flushes before it exits; do not cut it short.
TimeoutStopSec=60
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
# Daemons refuse to listen anywhere but on loopback until there is authentication; this says it again.
IPAddressDeny=any
IPAddressAllow=localhost
";

/// A service: description, further settings, and the command's arguments.
struct Unit {
    name: &'static str,
    about: &'static str,
    /// Lines of the `[Unit]` section.
    relations: &'static str,
    /// After `nacre`.
    arguments: &'static str,
    /// Lines of the `[Service]` section.
    service: &'static str,
}

/// A directory is run by the first alone, or by the other two; the locks in it prevent starting the
/// wrong one.
const UNITS: &[Unit] = &[
    Unit {
        name: "nacre.service",
        about: "Nacre storage cluster, whole, on this machine",
        relations: "Conflicts=nacre-mon@0.service",
        arguments: "up --dir /var/lib/nacre",
        service: "Restart=on-failure",
    },
    Unit {
        name: "nacre-mon@.service",
        about: "Nacre monitor %i",
        relations: "PartOf=nacre.target",
        arguments: "mon run --config /var/lib/nacre/cluster.toml --id %i",
        service: "Restart=on-failure\nRestartSec=1",
    },
    Unit {
        name: "nacre-osd@.service",
        about: "Nacre object storage daemon %i",
        relations: "PartOf=nacre.target\nAfter=nacre-mon@0.service",
        arguments: "osd run --config /var/lib/nacre/cluster.toml --id %i",
        service: "Restart=on-failure\nRestartSec=1",
    },
];

/// All daemons of this machine together: `systemctl stop nacre.target`.
const TARGET: &str = "\
[Unit]
Description=Nacre daemons of this machine

[Install]
WantedBy=multi-user.target
";

/// The user account of the daemons: `systemd-sysusers nacre.sysusers.conf`.
const USERS: &str = "u nacre - \"Nacre storage\" /var/lib/nacre\n";

impl Unit {
    fn text(&self) -> String {
        let Self {
            about,
            relations,
            arguments,
            service,
            name,
        } = self;
        let wanted = if name.contains('@') {
            "nacre.target"
        } else {
            "multi-user.target"
        };
        format!(
            "[Unit]\nDescription={about}\nAfter=network.target\n{relations}\n\n[Service]\nType=exec\n\
             ExecStart=/usr/local/bin/nacre {arguments}\n{service}\n{HARDENED}\n[Install]\nWantedBy={wanted}\n"
        )
    }
}

/// The binary needs only a C library; the base image must not be older than the machine that built
/// it.
const CONTAINER: &str = "\
FROM debian:stable-slim
COPY nacre /usr/local/bin/nacre
RUN useradd --system --create-home --home-dir /var/lib/nacre nacre
USER nacre
VOLUME /var/lib/nacre
ENV NACRE_CLUSTER=/var/lib/nacre
STOPSIGNAL SIGINT
ENTRYPOINT [\"/usr/local/bin/nacre\"]
CMD [\"up\", \"--dir\", \"/var/lib/nacre\"]
";

/// Fills `dist/`.
///
/// # Errors
/// When the build fails or a file cannot be written.
pub fn dist() -> Result<()> {
    crate::build()?;
    let workspace = Workspace::load()?;
    let folder = workspace.root.join("dist");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let binary = folder.join("nacre");
    fs::copy(workspace.binary(), &binary)
        .with_context(|| format!("copying to {}", binary.display()))?;
    program("strip").args([&binary]).run()?;
    let mut files: Vec<(&str, String)> =
        UNITS.iter().map(|unit| (unit.name, unit.text())).collect();
    files.push(("nacre.target", TARGET.to_owned()));
    files.push(("nacre.sysusers.conf", USERS.to_owned()));
    files.push(("Containerfile", CONTAINER.to_owned()));
    for (name, text) in &files {
        fs::write(folder.join(name), text).with_context(|| format!("writing dist/{name}"))?;
    }
    for name in std::iter::once("nacre").chain(files.iter().map(|(name, _)| *name)) {
        println!(
            "{:>10} bytes  dist/{name}",
            fs::metadata(folder.join(name))?.len()
        );
    }
    // Checks that the packed binary starts.
    program(&binary).args(["--version"]).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_runs_a_command_of_the_binary_and_nothing_as_root() {
        for unit in UNITS {
            let text = unit.text();
            assert!(
                text.contains("\nUser=nacre\n") && text.contains("\nNoNewPrivileges=yes\n"),
                "{text}"
            );
            let start = text
                .lines()
                .find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/nacre "));
            assert!(start.is_some_and(|words| !words.is_empty()), "{text}");
            // A template is started by number; without it, all its instances would be the same
            // daemon.
            assert_eq!(unit.name.contains('@'), text.contains("--id %i"), "{text}");
        }
    }
}
