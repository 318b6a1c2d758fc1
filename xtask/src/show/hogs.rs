//! Background load: processes that compute for ever, and processes that write and flush for ever.
//!
//! They are further processes of this program. Each ends when its standard input is closed, so none
//! outlives its parent.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Processes that keep the machine busy; ended when dropped.
#[derive(Default)]
pub struct Hogs(Vec<Child>);

impl Hogs {
    /// Starts this many of either kind; the writers write below `dir`.
    ///
    /// # Errors
    /// When one does not start.
    pub fn start(computing: usize, writing: usize, dir: &Path) -> Result<Self> {
        let mut hogs = Self::default();
        let program = std::env::current_exe().context("finding this program")?;
        let start = |hogs: &mut Self, command: &mut Command| -> Result<()> {
            hogs.0.push(
                command
                    .stdin(Stdio::piped())
                    .spawn()
                    .context("starting a busy process")?,
            );
            Ok(())
        };
        for _ in 0..computing {
            start(
                &mut hogs,
                Command::new(&program).args(["show", "--hog", "computing"]),
            )?;
        }
        for n in 0..writing {
            let file = dir.join(format!("hog-{n}"));
            start(
                &mut hogs,
                Command::new(&program)
                    .args(["show", "--hog", "writing"])
                    .arg(file),
            )?;
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// Number of bytes that a writer flushes at a time, and size of its file.
const FLUSHED: usize = 256 << 10;
const FILE: u64 = 64 << 20;

/// Main function of a background process.
///
/// # Errors
/// When it cannot write.
pub fn main(what: &[&str]) -> Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    match what {
        ["computing"] => {
            let mut state = 1_u64;
            loop {
                state =
                    std::hint::black_box(state.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
            }
        }
        ["writing", file] => {
            let (mut file, data) = (
                File::create(file).context("writing beside the cluster")?,
                vec![7_u8; FLUSHED],
            );
            loop {
                for _ in 0..FILE / FLUSHED as u64 {
                    file.write_all(&data)
                        .and_then(|()| file.sync_data())
                        .context("writing beside the cluster")?;
                }
                file.seek(SeekFrom::Start(0))
                    .context("writing beside the cluster")?;
            }
        }
        _ => bail!("--hog takes `computing` or `writing FILE`"),
    }
}
