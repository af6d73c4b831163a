//! `redrive work --reconcile`: a command is asked what became of a job whose outcome is unknown.

use redrive::{Completion, Failure, Reconciled, Unknown};

use crate::children::Ended;
use crate::command::{Runner, Task};
use crate::process::Exit;

impl Runner {
    /// Runs the command that is asked about a job, to its end.
    pub(crate) fn reconcile(&self, unknown: &Unknown) -> Result<Reconciled, Failure> {
        let mut more = vec![
            ("REDRIVE_OUTCOME_UNKNOWN", "1".to_owned()),
            ("REDRIVE_UNKNOWN_CODE", unknown.code().to_owned()),
            ("REDRIVE_UNKNOWN_DELIVERY", unknown.delivery().to_string()),
            ("REDRIVE_UNKNOWN_SINCE", unknown.since().as_millis().to_string()),
        ];
        if let Some(reference) = unknown.provider_ref() {
            more.push(("REDRIVE_PROVIDER_REF", reference.to_owned()));
        }
        let task = Task {
            token: unknown.token(),
            queue: unknown.queue(),
            kind: unknown.kind(),
            key: unknown.key(),
            payload: unknown.payload(),
            more,
        };
        let words = self.reconcile.as_deref().unwrap_or_default();
        let mut remains = match self.execute(words, &task)? {
            Ok(remains) => remains,
            Err(given_back) => return Ok(Reconciled::Happened(given_back)),
        };
        let message = remains.message();
        match (remains.exit, remains.ended) {
            (Exit::Status(0), _) => {
                Ok(Reconciled::Happened(Completion::new().result(remains.result())))
            }
            (_, Some(Ended::GivenBack)) => {
                Ok(Reconciled::Happened(self.give_back(Completion::give_back_started())))
            }
            (Exit::Status(status), None) if status == self.not_happened_code => {
                Ok(Reconciled::DidNotHappen)
            }
            (Exit::Status(status), _) => {
                Err(Failure::ambiguous(format!("exit_{status}")).message(message))
            }
            (Exit::Signal(signal), _) => {
                Err(Failure::ambiguous(format!("signal_{signal}")).message(message))
            }
        }
    }
}
