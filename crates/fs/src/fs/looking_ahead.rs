//! Lists names ahead that are likely to be looked up next ([`crate::ahead`] decides when).

use super::*;

impl Fs {
    /// A server had to answer a look-up.
    pub(super) fn look_ahead(&mut self, dir: Ino, out: &mut Vec<Output>) {
        if !self.is_stopping()
            && self.sessions.is_free(rank_of(dir))
            && let Some(list) = self.names.looked_up(dir, self.config.ahead)
        {
            self.request(list, Purpose::Ahead(dir), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Client, INO, node};
    use super::*;
    use nacre_wire::fs::{FileKind, Head, Inode, name_hash};
    use nacre_wire::msg::fs::{FsListed, FsNode};

    fn lookup(name: &str) -> Ask {
        Ask::Names(FsCall::Lookup {
            dir: Ino::ROOT,
            name: name.into(),
        })
    }
    fn is_list(call: &FsCall) -> bool {
        matches!(
            call,
            FsCall::List {
                dir: Ino::ROOT,
                after: 0,
                ..
            }
        )
    }
    /// Looks names up until a page of the directory is requested; returns that request's number.
    fn looked_up(client: &mut Client) -> Option<u64> {
        for name in ["a", "b", "c", "d"] {
            assert_eq!(client.asked(is_list), None, "a few names are no reason");
            let (_, number) = client.ask(lookup(name));
            assert!(number.is_some(), "{name} is not known");
            client.answer_shared(number, FsAnswer::Failed { errno: ENOENT });
        }
        client.asked(is_list)
    }

    /// Each `stat` of a file new to this mount cost a request: 3,000 files of one directory cost
    /// 3,000.
    #[test]
    fn who_looks_up_name_after_name_is_answered_from_memory_soon() {
        let mut client = Client::keeping(100);
        let number = looked_up(&mut client);
        let FsAnswer::Node { node, .. } = node(7) else {
            unreachable!()
        };
        let mut entries = vec![FsListed {
            name: "x".into(),
            node,
        }];
        let dir = Inode::new(
            Ino(INO.0 + 1),
            FileKind::Directory {},
            0o755,
            (1, 1),
            Stamp(1),
        );
        let dir = FsNode {
            inode: dir,
            head: Some(Head::default()),
            home: None,
        };
        entries.push(FsListed {
            name: "sub".into(),
            node: dir,
        });
        entries.sort_by_key(|listed| name_hash(&listed.name));
        client.ended();
        client.answer_shared(number, FsAnswer::Listed { entries, end: true });
        assert_eq!(client.ended(), [], "no caller has asked for it");
        for (name, is_known) in [("x", true), ("y", true), ("sub", false)] {
            let (call, number) = client.ask(lookup(name));
            assert_eq!(
                number.is_none(),
                is_known,
                "{name}: what is in a directory changes by itself"
            );
            let ended = client.ended();
            assert_eq!(ended.iter().any(|(ended, _)| *ended == call), is_known);
        }
    }

    /// If a directory cannot be listed, that must not be tried with every look-up.
    #[test]
    fn a_page_that_cannot_be_had_is_let_go() {
        let mut client = Client::keeping(100);
        let number = looked_up(&mut client);
        client.answer_shared(number, FsAnswer::Failed { errno: EIO });
        for name in ["e", "f", "g", "h", "i"] {
            let (_, number) = client.ask(lookup(name));
            client.answer_shared(number, FsAnswer::Failed { errno: ENOENT });
            assert_eq!(client.asked(is_list), None, "once is enough");
        }
    }
}
