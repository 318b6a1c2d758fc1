//! Mount options.

use crate::table::SOURCE;
use fuser::{Config, MountOption, SessionACL};
use std::fmt;

/// How a file system is mounted. The kernel always checks permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// The file system's name in the table of mounts.
    pub fsname: String,
    /// Users other than the one that mounts it may use it, according to its files' permissions.
    pub allow_other: bool,
    /// Nothing may be changed.
    pub read_only: bool,
}

/// An unknown mount option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOption(String);

impl fmt::Display for UnknownOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there is no mount option {:?}; there are allow_other, ro, rw and fsname=NAME",
            self.0
        )
    }
}

impl std::error::Error for UnknownOption {}

impl MountOptions {
    /// The options of a file system with that name.
    #[must_use]
    pub fn of(file_system: &str) -> Self {
        Self {
            fsname: format!("{SOURCE}{file_system}"),
            ..Self::default()
        }
    }

    /// Parses the argument of `-o`: options separated by commas. Later ones override earlier ones.
    ///
    /// # Errors
    /// One of them is unknown.
    pub fn take(&mut self, text: &str) -> Result<(), UnknownOption> {
        for option in text
            .split(',')
            .map(str::trim)
            .filter(|option| !option.is_empty())
        {
            match option.split_once('=') {
                None if option == "allow_other" => self.allow_other = true,
                None if option == "ro" => self.read_only = true,
                None if option == "rw" => self.read_only = false,
                Some(("fsname", name)) if !name.is_empty() => name.clone_into(&mut self.fsname),
                _ => return Err(UnknownOption(option.to_owned())),
            }
        }
        Ok(())
    }

    /// The same for the library.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::default();
        // The mount helper treats commas as separators.
        let fsname = self.fsname.replace([',', '\\'], "_");
        config.mount_options = vec![
            MountOption::FSName(fsname),
            MountOption::Subtype("nacre".to_owned()),
            MountOption::DefaultPermissions,
            if self.read_only {
                MountOption::RO
            } else {
                MountOption::RW
            },
        ];
        config.acl = if self.allow_other {
            SessionACL::All
        } else {
            SessionACL::Owner
        };
        // One thread handles 114,000 to 152,000 requests/s; more threads were slower.
        config.n_threads = Some(1);
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_words_between_commas_and_the_last_one_counts() {
        let mut options = MountOptions::of("files");
        assert_eq!(options.fsname, "nacre:files");
        options
            .take("ro,allow_other,,fsname=a=b")
            .expect("all known");
        let expected = MountOptions {
            fsname: "a=b".to_owned(),
            allow_other: true,
            read_only: true,
        };
        assert_eq!(options, expected);
        options.take("rw").expect("known");
        assert!(!options.read_only);
        let why = options
            .take("allow_other,sync")
            .expect_err("not one of ours")
            .to_string();
        assert_eq!(
            why,
            "there is no mount option \"sync\"; there are allow_other, ro, rw and fsname=NAME"
        );
        assert!(options.take("fsname=").is_err() && options.take("ro=1").is_err());
    }

    #[test]
    fn rights_are_always_the_kernels_to_check() {
        let config = MountOptions::of("a,b").config();
        assert!(
            config
                .mount_options
                .contains(&MountOption::DefaultPermissions)
        );
        assert!(
            config
                .mount_options
                .contains(&MountOption::FSName("nacre:a_b".to_owned()))
        );
        assert_eq!(config.acl, SessionACL::Owner);
    }
}
