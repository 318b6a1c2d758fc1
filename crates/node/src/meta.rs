//! The facade's part for service metadata: small keys replicated by the monitors.

use crate::access::Call as Request;
use crate::cluster::{Call, Cluster, call};
use crate::error::Error;
use crate::slot::slot;
use bytes::Bytes;
use nacre_client::WatchNews;
use nacre_types::Name;
use nacre_wire::msg::meta::{MetaCall, MetaError, MetaOp, MetaPair, MetaResult, MetaSpan};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

/// Maximum number of events waiting for a slow reader; beyond, the watch ends, and says from where
/// to continue.
const NEWS_MAX: usize = 10_000;

#[derive(Default)]
struct SinkState {
    news: VecDeque<WatchNews>,
    through: u64,
    ended: bool,
    waker: Option<Waker>,
}

/// Queue of a watch's events.
#[derive(Default)]
pub struct Sink(Mutex<SinkState>);

impl Sink {
    fn lock(&self) -> MutexGuard<'_, SinkState> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// Adds an event; false: the reader is too slow or gone, and the watch is over.
    pub fn push(&self, news: WatchNews) -> bool {
        let mut state = self.lock();
        if state.ended {
            return false;
        }
        if state.news.len() >= NEWS_MAX {
            let from = state.through + 1;
            let why = format!("this watch's reader is too slow; watch again from revision {from}");
            state
                .news
                .push_back(WatchNews::Ended(MetaError::Unavailable { why }));
            state.ended = true;
        } else {
            match &news {
                WatchNews::Events { through, .. } => state.through = *through,
                WatchNews::Ended(_) => state.ended = true,
            }
            state.news.push_back(news);
        }
        let (goes_on, waker) = (!state.ended, state.waker.take());
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        goes_on
    }
}

/// A watch. It ends when this is dropped.
pub struct MetaWatcher {
    cluster: Cluster,
    sink: Arc<Sink>,
}

impl MetaWatcher {
    /// The next events, in the order of revisions, without duplicates or gaps. After
    /// [`WatchNews::Ended`] there are no more.
    pub fn next(&self) -> Call<'_, WatchNews> {
        call(poll_fn(|context| {
            let mut state = self.sink.lock();
            if let Some(news) = state.news.pop_front() {
                return Poll::Ready(Ok(news));
            }
            if state.ended {
                return Poll::Ready(Err(Error::Stopped {
                    why: "the watch has ended".to_owned(),
                }));
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        }))
    }
}
impl Drop for MetaWatcher {
    fn drop(&mut self) {
        self.sink.lock().ended = true;
        // A stopped client has no watches.
        let _ = self.cluster.port().call(Request::MetaUnwatch {
            sink: self.sink.clone(),
        });
    }
}

impl Cluster {
    /// Any metadata request: the store's revision, and its result. It is executed once, however
    /// often it has to be sent.
    pub fn meta(&self, request: MetaCall) -> Call<'_, (u64, MetaResult)> {
        call(async move {
            let (reply, receiver) = slot();
            let deadline = self.deadline();
            self.port().call(Request::Meta {
                call: request,
                deadline,
                reply,
            })?;
            receiver.await.ok_or_else(|| self.gone())?
        })
    }

    /// The current value of a key.
    pub fn meta_get(&self, key: impl Into<Name>) -> Call<'_, Option<MetaPair>> {
        let span = MetaSpan::Key { key: key.into() };
        call(async move { Ok(self.meta_list(span).await?.0.pop()) })
    }

    /// Sets a key; returns the revision of the change.
    pub fn meta_put(&self, key: impl Into<Name>, value: impl Into<Bytes>) -> Call<'_, u64> {
        let put = MetaOp::Put {
            key: key.into(),
            value: value.into(),
            lease: 0,
        };
        call(async move {
            Ok(self
                .meta(MetaCall::Transact {
                    compares: vec![],
                    then: vec![put],
                    otherwise: vec![],
                })
                .await?
                .0)
        })
    }

    /// All keys of a span, and the revision of the read. Long lists take several reads, each at a
    /// different time. The revision is the first one's, so that a watch from there misses nothing.
    pub fn meta_list(&self, span: MetaSpan) -> Call<'_, (Vec<MetaPair>, u64)> {
        call(async move {
            let (mut all, mut revision, mut next) = (Vec::new(), None, span.clone());
            loop {
                let request = MetaCall::Range {
                    span: next,
                    limit: 0,
                    keys_only: false,
                    serializable: false,
                };
                let (at, MetaResult::Ranged { pairs, more }) = self.meta(request).await? else {
                    return Err(Error::Unexpected("list of keys"));
                };
                let revision = *revision.get_or_insert(at);
                all.extend(pairs.into_iter().filter(|pair| span.has(&pair.key)));
                match all.last().filter(|_| more) {
                    Some(last) => next = span.behind(&last.key),
                    None => return Ok((all, revision)),
                }
            }
        })
    }

    /// Watches changes from a revision on; 0: from now on.
    ///
    /// # Errors
    /// [`Error::Stopped`]: the client has stopped.
    pub fn meta_watch(&self, span: MetaSpan, from: u64) -> Result<MetaWatcher, Error> {
        let sink = Arc::<Sink>::default();
        self.port().call(Request::MetaWatch {
            span,
            from,
            sink: sink.clone(),
        })?;
        Ok(MetaWatcher {
            cluster: self.clone(),
            sink,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Failed when `push` did not check the length.
    #[test]
    fn a_slow_readers_news_are_bounded() {
        let sink = Sink::default();
        let news = |through| WatchNews::Events {
            events: Vec::new(),
            through,
        };
        let taken = (1..).take_while(|n| sink.push(news(*n))).count();
        assert_eq!(taken, NEWS_MAX);
        let last = sink.lock().news.pop_back();
        assert!(
            matches!(last, Some(WatchNews::Ended(MetaError::Unavailable { why })) if why.ends_with("10001"))
        );
    }
}
