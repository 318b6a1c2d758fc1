//! Operations evaluated outside of the daemon's own thread, because one of their methods takes too
//! long for it (`nacre_object::methods`).

use nacre_object::claims::Scene;
use nacre_object::evaluate::Brought;
use nacre_object::methods::{Complaint, Facts, Runtime, bounded};
use nacre_object::{Context, Fetched, Outcome, Setting, evaluate};
use nacre_policy::errno;
use nacre_role::{Done, Job, Tools};
use nacre_types::{ClientId, Epoch, PgId, Time};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, OpRequest};

/// An operation to be evaluated on another thread: it contains everything that the evaluation
/// depends on, so that nothing can change under it.
#[derive(Debug)]
pub struct EvaluateJob {
    pub(crate) pg: PgId,
    pub(crate) interval: Epoch,
    pub(crate) number: u64,
    pub(crate) request: OpRequest,
    pub(crate) payload: Payload,
    pub(crate) context: Context,
    pub(crate) fetched: Fetched,
    pub(crate) full: bool,
    pub(crate) may_write: bool,
    pub(crate) scene: Scene,
    pub(crate) brought: Brought,
    pub(crate) facts: Facts,
}

/// The result of an evaluation.
#[derive(Debug)]
pub struct Evaluated {
    pub(crate) pg: PgId,
    pub(crate) interval: Epoch,
    pub(crate) number: u64,
    pub(crate) outcome: Outcome,
    pub(crate) complaints: Vec<Complaint>,
}

impl Job for EvaluateJob {
    fn client(&self) -> ClientId {
        self.request.request.client
    }

    fn run(&self, tools: &mut Tools) -> Done {
        let runtime = tools.get(|patience| {
            let mut runtime = Runtime::patient();
            if let Some(patience) = patience {
                runtime.set_patience(patience);
            }
            runtime
        });
        let Self {
            request,
            payload,
            context,
            scene,
            brought,
            ..
        } = self;
        runtime.begin(request.request.client, Time::ZERO, self.facts.clone());
        let setting = Setting {
            full: self.full,
            may_write: self.may_write,
            scene,
            brought,
        };
        let outcome = evaluate(
            request,
            payload,
            context,
            self.fetched.clone(),
            &setting,
            runtime,
        );
        self.ended(outcome, std::mem::take(&mut runtime.complaints))
    }

    fn not_done(&self, why: String) -> Done {
        let errno = errno::EAGAIN.unsigned_abs();
        let failure = OpFailure::Method {
            index: 0,
            activation: 0,
            errno,
            why: bounded(why),
        };
        self.ended(Outcome::failed(failure), Vec::new())
    }
}

impl EvaluateJob {
    fn ended(&self, outcome: Outcome, complaints: Vec<Complaint>) -> Done {
        Done::new(Evaluated {
            pg: self.pg,
            interval: self.interval,
            number: self.number,
            outcome,
            complaints,
        })
    }
}
