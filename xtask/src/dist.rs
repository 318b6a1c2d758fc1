//! `./x dist`: what somebody needs to run Nacre without this tree.

use crate::step::program;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use std::fs;

/// One machine's daemons as a service. Nothing in it needs root, and the service may write its data folder only.
const UNIT: &str = "\
[Unit]
Description=Nacre storage cluster on this machine
After=network.target

[Service]
Type=exec
ExecStart=/usr/local/bin/nacre up --dir /var/lib/nacre
DynamicUser=yes
StateDirectory=nacre
Restart=on-failure
# A store flushes before it exits; do not cut it short.
TimeoutStopSec=60
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
# Daemons refuse to listen anywhere but on loopback until there is authentication; this says it again.
IPAddressDeny=any
IPAddressAllow=localhost

[Install]
WantedBy=multi-user.target
";

/// The binary needs a C library and nothing else; the base image must not be older than the machine that built it.
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
    fs::copy(workspace.binary(), &binary).with_context(|| format!("copying to {}", binary.display()))?;
    program("strip").args([&binary]).run()?;
    for (name, text) in [("nacre.service", UNIT), ("Containerfile", CONTAINER)] {
        fs::write(folder.join(name), text).with_context(|| format!("writing dist/{name}"))?;
    }
    for name in ["nacre", "nacre.service", "Containerfile"] {
        println!("{:>10} bytes  dist/{name}", fs::metadata(folder.join(name))?.len());
    }
    Ok(())
}
