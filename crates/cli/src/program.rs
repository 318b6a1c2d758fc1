//! `nacre class …` and `nacre policy …`: programs of a running cluster (MAL-01, MAL-14, MAL-20,
//! MAL-22, MAL-70; DESIGN §4).
//!
//! ```text
//!  install: check here ─▶ `program prepare` ─▶ source as an object named by its digest ─▶ `program install`: the map names it
//! ```
//! The source is durable before the map names it, and a reader verifies it by the digest.

use crate::clock;
use crate::cluster::{Commands, Session};
use crate::object::{Target, pool_id};
use crate::objects::{call, operation};
use crate::out::Out;
use crate::policy_test;
use crate::shelf;
use crate::table::table;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Subcommand;
use nacre_command::{Command, ProgramActivate, ProgramInstall, Whole};
use nacre_policy::library;
use nacre_types::{ObjectId, PoolId};
use nacre_wire::Payload;
use nacre_wire::map::programs::{SOURCE_BYTES_MAX, SOURCE_READ_MAX, source_object};
use nacre_wire::map::{ProgramKind, SourceDigest};
use nacre_wire::msg::client::{SubOp, SubReply};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What classes and policies have in common.
#[derive(Subcommand)]
pub enum Program {
    /// Check a source, store it, and make it a version of a program. A class is live at once, a
    /// policy when it is activated.
    Install {
        /// The program's name.
        name: String,
        /// Its source; `-` is standard input. Without it, a class comes from the library:
        /// `nacre class library` lists what there is.
        file: Option<PathBuf>,
    },
    /// What is installed.
    Ls,
    /// A program and its versions; with --source, the source.
    Show {
        /// The program's name.
        name: String,
        /// Print the source instead.
        #[arg(long)]
        source: bool,
        /// Of this version [default: the active one].
        #[arg(long, value_name = "VERSION")]
        number: Option<u64>,
    },
    /// What changed from one version to another.
    Diff {
        /// The program's name.
        name: String,
        /// The older version [default: the one before the newer].
        from: Option<u64>,
        /// The newer version [default: the last one installed].
        to: Option<u64>,
    },
    /// Make the version before the active one active again, or the one named.
    Rollback {
        /// The program's name.
        name: String,
        /// Which version.
        #[arg(long, value_name = "VERSION")]
        to: Option<u64>,
    },
    /// Remove a program.
    Rm {
        /// The program's name.
        name: String,
    },
}

/// Object classes.
#[derive(Subcommand)]
pub enum Class {
    #[command(flatten)]
    Program(Program),
    /// Classes that come with Nacre. With a name, what it does and how it is called; with
    /// --install, they are installed.
    Library {
        /// Classes of the library.
        names: Vec<String>,
        /// Print their source instead.
        #[arg(long, requires = "names", conflicts_with = "install")]
        source: bool,
        /// Install these classes; without names, all of the library.
        #[arg(long)]
        install: bool,
    },
    /// Call a method on an object: input from standard input, output to standard output.
    Exec {
        #[command(flatten)]
        target: Target,
        /// The class.
        class: String,
        /// The method.
        method: String,
        /// The input, instead of standard input.
        #[arg(long)]
        input: Option<String>,
    },
    /// Run a script of one's own on an object, without installing it: input from standard input,
    /// output to standard output.
    Eval {
        #[command(flatten)]
        target: Target,
        /// The script; `-` is not possible, as standard input is the input.
        file: PathBuf,
        /// Which of the functions that it registers.
        handler: String,
        /// The input, instead of standard input.
        #[arg(long)]
        input: Option<String>,
    },
}

/// Policies.
#[derive(Subcommand)]
pub enum Policy {
    #[command(flatten)]
    Program(Program),
    #[command(flatten)]
    Bench(policy_test::Bench),
    /// Make a version of a policy the active one.
    Activate {
        /// The policy's name.
        name: String,
        /// Which version [default: the last one installed].
        #[arg(long, value_name = "VERSION")]
        number: Option<u64>,
    },
    /// Let no version of a policy be active.
    Deactivate {
        /// The policy's name.
        name: String,
    },
}

/// `nacre class …` as the client `name`.
///
/// # Errors
/// Errors of the source, the monitors or the method.
pub fn class(command: Class, name: &str, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    match command {
        Class::Program(command) => program(ProgramKind::Class {}, command, name, cluster, out),
        Class::Library {
            names,
            source: _,
            install: true,
        } => shelf_install(&names, name, cluster, out),
        Class::Library {
            names,
            source,
            install: false,
        } => shelf::show(&names, source, out),
        Class::Exec {
            target,
            class,
            method,
            input,
        } => {
            let input = input_of(input)?;
            let op = SubOp::Call {
                class: class.as_str().into(),
                method: method.as_str().into(),
                length: input.len() as u64,
            };
            run_method(
                &target,
                op,
                vec![input],
                &format!("class {class}"),
                cluster,
                out,
            )
        }
        Class::Eval {
            target,
            file,
            handler,
            input,
        } => {
            let script = Bytes::from(read_source(&file)?);
            let input = input_of(input)?;
            let op = SubOp::Eval {
                script: script.len() as u64,
                handler: handler.as_str().into(),
                input: input.len() as u64,
            };
            run_method(&target, op, vec![script, input], "script", cluster, out)
        }
    }
}

/// `nacre policy …` as the client `name`.
///
/// # Errors
/// Errors of the source or the monitors.
pub fn policy(command: Policy, name: &str, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let kind = ProgramKind::Policy {};
    match command {
        Policy::Program(command) => program(kind, command, name, cluster, out),
        Policy::Activate {
            name: policy,
            number,
        } => {
            let version = match number {
                Some(version) => version,
                None => newest(&show(kind, &policy, cluster)?)?,
            };
            activate(kind, &policy, Some(version), name, cluster, out)
        }
        Policy::Bench(_) => unreachable!("runs without a cluster: see main"),
        Policy::Deactivate { name: policy } => activate(kind, &policy, Some(0), name, cluster, out),
    }
}

fn program(
    kind: ProgramKind,
    command: Program,
    me: &str,
    cluster: &mut dyn Session,
    out: &mut Out,
) -> Result<()> {
    match command {
        Program::Install { name, file } => {
            let source = match (&file, library::class(&name)) {
                (Some(file), _) => read_source(file)?,
                (None, Some(class)) if kind == ProgramKind::Class {} => class.source.into(),
                (None, _) if kind == ProgramKind::Class {} => {
                    bail!(
                        "the library has no class {name} (`nacre class library` lists them): give the file of its source"
                    )
                }
                (None, _) => bail!("give the file of the source of {kind} {name}"),
            };
            install(kind, &name, &source, me, cluster, out)
        }
        Program::Ls => {
            let reply = cluster.command(&Command::ProgramLs {
                kind: Some(kind.into()),
            })?;
            if out.json() {
                return out.value(&reply);
            }
            let columns = [
                ("NAME", "name"),
                ("VERSION", "active"),
                ("ACTIVATION", "activation"),
                ("VERSIONS", "count"),
                ("BY", "by"),
            ];
            out.bytes(table(&columns, &rows(&reply)).as_bytes())
        }
        Program::Show {
            name,
            source,
            number,
        } => {
            let program = show(kind, &name, cluster)?;
            if source {
                let number = number
                    .or(program["active"].as_u64().filter(|n| *n > 0))
                    .map_or_else(|| newest(&program), Ok)?;
                let source = source_of(kind, &name, &program, number, cluster)?;
                return out.bytes(&source);
            }
            if out.json() {
                return out.value(&program);
            }
            let active = program["active"].as_u64().unwrap_or(0);
            let versions: Vec<Value> = program["versions"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|version| {
                    let mut row = version.clone();
                    row["installed"] =
                        json!(clock::utc(version["installed_ms"].as_u64().unwrap_or(0)));
                    row["state"] = json!(if version["version"].as_u64() == Some(active) {
                        "active"
                    } else {
                        ""
                    });
                    row["short"] = json!(version["digest"].as_str().unwrap_or_default().get(..16));
                    row
                })
                .collect();
            let what = if active == 0 {
                "no version is active".to_owned()
            } else {
                format!("version {active} is active")
            };
            out.line(&format!(
                "{kind} {name}: {what}, activation {}, since map epoch {}",
                program["activation"], program["since"]
            ))?;
            let columns = [
                ("VERSION", "version"),
                ("STATE", "state"),
                ("INSTALLED", "installed"),
                ("BY", "by"),
                ("BYTES", "bytes"),
                ("DIGEST", "short"),
            ];
            out.bytes(table(&columns, &versions).as_bytes())
        }
        Program::Diff { name, from, to } => {
            let program = show(kind, &name, cluster)?;
            let to = to.map_or_else(|| newest(&program), Ok)?;
            let Some(from) = from.or_else(|| before(&program, to)) else {
                bail!("{kind} {name} has no version before {to} to compare with");
            };
            let [old, new] =
                [from, to].map(|number| source_of(kind, &name, &program, number, cluster));
            let (old, new) = (text(old?), text(new?));
            let headers = (
                format!("{name} version {from}"),
                format!("{name} version {to}"),
            );
            let diff = similar::TextDiff::from_lines(&old, &new);
            let diff = diff
                .unified_diff()
                .context_radius(3)
                .header(&headers.0, &headers.1)
                .to_string();
            if out.json() {
                out.value(&json!({ "from": from, "to": to, "diff": diff }))
            } else {
                out.bytes(diff.as_bytes())
            }
        }
        Program::Rollback { name, to } => activate(kind, &name, to, me, cluster, out),
        Program::Rm { name } => {
            let (called, client) = (name.clone(), Some(me.to_owned()));
            let rm = Command::ProgramRm {
                kind: kind.into(),
                name: called,
                client,
            };
            let reply = cluster.command(&rm)?;
            if out.json() {
                out.value(&reply)
            } else {
                out.say(&format!("{kind} {name} is removed"))
            }
        }
    }
}

fn install(
    kind: ProgramKind,
    name: &str,
    source: &[u8],
    me: &str,
    cluster: &mut dyn Session,
    out: &mut Out,
) -> Result<()> {
    let reply = store_and_install(kind, name, source, me, cluster)?;
    if out.json() {
        return out.value(&reply);
    }
    let version = &reply["version"];
    out.say(&match (reply["unchanged"] == json!(true), &reply["activation"]) {
        (true, _) => format!("{kind} {name}: this source is version {version} already; nothing changed"),
        (_, activation) if activation == &json!(0) => {
            format!("{kind} {name}: version {version} is installed; `nacre {kind} activate {name}` makes it active")
        }
        (_, activation) => format!("{kind} {name}: version {version} is active (activation {activation})"),
    })
}

/// Installs classes of the library, all if none is named. One that is already active in this
/// version is skipped.
fn shelf_install(
    names: &[String],
    me: &str,
    cluster: &mut dyn Session,
    out: &mut Out,
) -> Result<()> {
    // Before the first: a wrong name installs nothing.
    let classes = shelf::classes(names)?;
    let kind = ProgramKind::Class {};
    let mut replies = Vec::new();
    for class in classes {
        let name = class.name;
        if !out.json() {
            install(kind, name, class.source.as_bytes(), me, cluster, out)?;
            continue;
        }
        let mut reply = store_and_install(kind, name, class.source.as_bytes(), me, cluster)
            .with_context(|| format!("class {name}"))?;
        reply["name"] = json!(name);
        replies.push(reply);
    }
    if out.json() {
        out.value(&json!({ "classes": replies }))
    } else {
        Ok(())
    }
}

/// Stores a source, and installs it in the map; returns the monitors' answer.
///
/// # Errors
/// Their error about the source, or that it cannot be stored.
pub fn store_and_install(
    kind: ProgramKind,
    name: &str,
    source: &[u8],
    me: &str,
    cluster: &mut dyn Session,
) -> Result<Value> {
    let install = store(kind, name, source, me, cluster)?;
    cluster.command(&install)
}

/// Stores a source; returns the command that installs it in the map.
///
/// # Errors
/// It is too long or cannot be stored, or the client lacks the capability.
pub fn store(
    kind: ProgramKind,
    name: &str,
    source: &[u8],
    me: &str,
    cluster: &mut dyn Session,
) -> Result<Command> {
    let text = std::str::from_utf8(source).context("the source is not UTF-8 text")?;
    if source.len() > SOURCE_BYTES_MAX {
        bail!(
            "the source has {} bytes; {SOURCE_BYTES_MAX} are allowed",
            source.len()
        );
    }
    let client = Some(me.to_owned());
    cluster.command(&Command::ProgramPrepare {
        kind: kind.into(),
        client: client.clone(),
    })?;
    let home = cluster.program_pool();
    let pool = pool_id(cluster, home)?;
    let digest = SourceDigest(*blake3::hash(source).as_bytes());
    let object = source_object(kind, &name.into(), &digest);
    let ops = vec![SubOp::WriteFull {
        length: source.len() as u64,
    }];
    call(
        cluster,
        operation(pool, object, ops, vec![Bytes::copy_from_slice(source)]),
    )?
    .with_context(|| format!("the source could not be stored in pool {home}"))?;
    Ok(Command::ProgramInstall(ProgramInstall {
        kind: kind.into(),
        name: name.to_owned(),
        source: text.to_owned(),
        activate: None,
        unix_ms: Some(Whole(clock::now_unix_ms())),
        client,
    }))
}

fn activate(
    kind: ProgramKind,
    name: &str,
    version: Option<u64>,
    me: &str,
    cluster: &mut dyn Session,
    out: &mut Out,
) -> Result<()> {
    let reply = cluster.command(&Command::ProgramActivate(ProgramActivate {
        kind: kind.into(),
        name: name.to_owned(),
        version: version.map(Whole),
        client: Some(me.to_owned()),
    }))?;
    if out.json() {
        return out.value(&reply);
    }
    out.say(&match reply["version"].as_u64() {
        Some(0) => format!("{kind} {name}: no version is active"),
        _ => format!(
            "{kind} {name}: version {} is active (activation {})",
            reply["version"], reply["activation"]
        ),
    })
}

fn show(kind: ProgramKind, name: &str, cluster: &mut dyn Session) -> Result<Value> {
    cluster.command(&Command::ProgramShow {
        kind: kind.into(),
        name: name.to_owned(),
    })
}

fn rows(reply: &Value) -> Vec<Value> {
    let row = |program: &Value| {
        let mut row = program.clone();
        let versions = program["versions"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        row["count"] = json!(versions.len());
        if row["active"] == json!(0) {
            row["active"] = json!("none");
        }
        let active = versions
            .iter()
            .find(|version| version["version"] == program["active"]);
        row["by"] = active.map_or(json!(""), |version| version["by"].clone());
        row
    };
    reply["programs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(row)
        .collect()
}

fn newest(program: &Value) -> Result<u64> {
    let versions = program["versions"].as_array().into_iter().flatten();
    versions
        .filter_map(|version| version["version"].as_u64())
        .max()
        .context("it has no versions")
}

fn before(program: &Value, number: u64) -> Option<u64> {
    let versions = program["versions"].as_array().into_iter().flatten();
    versions
        .filter_map(|version| version["version"].as_u64())
        .filter(|n| *n < number)
        .max()
}

/// The stored source of a version, verified.
fn source_of(
    kind: ProgramKind,
    name: &str,
    program: &Value,
    number: u64,
    cluster: &mut dyn Session,
) -> Result<Vec<u8>> {
    let versions = program["versions"].as_array().into_iter().flatten();
    let version = versions
        .clone()
        .find(|version| version["version"].as_u64() == Some(number));
    let Some(version) = version else {
        let numbers: Vec<String> = versions
            .map(|version| version["version"].to_string())
            .collect();
        bail!(
            "{kind} {name} has no version {number}; there are {}",
            numbers.join(", ")
        );
    };
    let digest = parse_digest(version["digest"].as_str().unwrap_or_default())?;
    let object = source_object(kind, &name.into(), &digest);
    let home = cluster.program_pool();
    let pool = pool_id(cluster, home)?;
    let source = read_object(pool, object, cluster)?;
    if *blake3::hash(&source).as_bytes() != digest.0 {
        bail!(
            "what is stored as version {number} of {kind} {name} is not what was installed; install it again"
        );
    }
    Ok(source)
}

fn read_object(pool: PoolId, object: ObjectId, cluster: &mut dyn Session) -> Result<Vec<u8>> {
    let ops = vec![SubOp::Read {
        offset: 0,
        length: SOURCE_READ_MAX,
    }];
    let done = call(
        cluster,
        operation(pool, object.clone(), ops, Payload::new()),
    )?
    .with_context(|| {
        format!(
            "the source {} of pool {} cannot be read",
            object.name,
            cluster.program_pool()
        )
    })?;
    Ok(done.payload.concat())
}

fn parse_digest(text: &str) -> Result<SourceDigest> {
    let mut bytes = [0; 32];
    let hex = |at: usize| {
        text.get(2 * at..2 * at + 2)
            .and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = hex(at).context("the monitors gave a digest that is none")?;
    }
    Ok(SourceDigest(bytes))
}

fn run_method(
    target: &Target,
    op: SubOp,
    payload: Payload,
    what: &str,
    cluster: &mut dyn Session,
    out: &mut Out,
) -> Result<()> {
    let pool = pool_id(cluster, target.pool())?;
    let done = call(
        cluster,
        operation(pool, target.object()?, vec![op], payload),
    )??;
    let Some(SubReply::Called {
        activation,
        status,
        output,
    }) = done.results.into_iter().next()
    else {
        bail!(
            "the answer to a call is none: this `nacre` and the cluster's are of different versions"
        );
    };
    if out.json() {
        let mut value = json!({ "activation": activation, "status": status, "version": done.version.to_string() });
        match std::str::from_utf8(&output) {
            Ok(text) => value["output"] = json!(text),
            Err(_) => {
                value["output_hex"] = json!(
                    output
                        .iter()
                        .map(|byte| format!("{byte:02x}"))
                        .collect::<String>()
                )
            }
        }
        return out.value(&value);
    }
    out.given(&output)?;
    if activation > 0 {
        // Separate from the output; and after it, where both go to one place.
        out.finish()?;
        crate::say::line(&format!(
            "{}, activation {activation}, status {status}",
            crate::shown::shown(what)
        ));
    }
    Ok(())
}

/// A source file; `-` is standard input.
///
/// # Errors
/// When it cannot be read.
pub fn read_source(file: &Path) -> Result<Vec<u8>> {
    if file.as_os_str() == "-" {
        let mut source = Vec::new();
        std::io::stdin()
            .read_to_end(&mut source)
            .context("standard input cannot be read")?;
        return Ok(source);
    }
    fs::read(file).with_context(|| format!("{} cannot be read", file.display()))
}

fn input_of(given: Option<String>) -> Result<Bytes> {
    use std::io::IsTerminal;
    if let Some(text) = given {
        return Ok(text.into());
    }
    let mut input = Vec::new();
    // The input of most methods is not typed.
    if !std::io::stdin().is_terminal() {
        std::io::stdin()
            .read_to_end(&mut input)
            .context("standard input cannot be read")?;
    }
    Ok(input.into())
}

fn text(source: Vec<u8>) -> String {
    String::from_utf8_lossy(&source).into_owned()
}

/// What named clients may do.
#[derive(Subcommand)]
pub enum Client {
    /// Clients that the cluster knows by name, and what they may do.
    Ls,
    /// Say what a client may do: `all`, `install class`, `install policy`,
    /// `call POOL CLASS METHOD`, `eval POOL`; `*` is any.
    Set {
        /// The client's name.
        name: String,
        /// All it may; none is nothing.
        capabilities: Vec<String>,
    },
    /// Forget a client: it may then call what is installed.
    Rm {
        /// The client's name.
        name: String,
    },
}

/// `nacre client …` as the client `me`.
///
/// # Errors
/// Errors of the monitors.
pub fn client(command: &Client, me: &str, cluster: &mut dyn Commands, out: &mut Out) -> Result<()> {
    let client = Some(me.to_owned());
    let request = match command {
        Client::Ls => Command::ClientLs {},
        Client::Set { name, capabilities } => {
            let (name, capabilities) = (name.clone(), capabilities.clone());
            Command::ClientSet {
                name,
                capabilities,
                client,
            }
        }
        Client::Rm { name } => Command::ClientRm {
            name: name.clone(),
            client,
        },
    };
    let reply = cluster.command(&request)?;
    if out.json() {
        return out.value(&reply);
    }
    match command {
        Client::Ls => {
            let rows: Vec<Value> = reply["clients"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|client| {
                    let all = client["capabilities"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_str);
                    json!({ "name": client["name"], "may": all.collect::<Vec<_>>().join("; ") })
                })
                .collect();
            out.bytes(table(&[("NAME", "name"), ("MAY", "may")], &rows).as_bytes())
        }
        Client::Set { name, .. } => out.say(&format!("client {name} is set")),
        Client::Rm { name } => out.say(&format!("client {name} is forgotten")),
    }
}
