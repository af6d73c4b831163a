//! Pauses and holds: they can be read, and what they name exists.

use crate::domain::pause::{Stop, Stopped};
use crate::error::StorageError;
use crate::format::{hex, key, record};
use crate::store::rows::{Row, Rows};
use crate::store::tables::TableId;
use crate::store::verify::Check;

impl<R: Rows> Check<'_, R> {
    pub(super) fn pause_row(&mut self, (name, value): &Row) -> Result<(), StorageError> {
        let stop = record::decode::<Stop>(value);
        let (stopped, stop) = match (key::read_pause(name), stop) {
            (Ok(stopped), Ok(stop)) => (stopped, stop),
            (Err(damage), _) | (_, Err(damage)) => {
                self.problem(TableId::Pauses, hex(name), damage.0);
                return Ok(());
            }
        };
        let (queue, kind) = match stopped {
            Stopped::Queue(queue) | Stopped::HeldQueue(queue) => (queue.get(), 0),
            Stopped::Class(class) | Stopped::RedriveClass(class) | Stopped::HeldClass(class) => {
                (class.queue.get(), class.kind.get())
            }
            Stopped::Redrive => (0, 0),
        };
        let known =
            |number: u32, count| number == 0 || usize::try_from(number).is_ok_and(|n| n < count);
        if !known(queue, self.queues) || !known(kind, self.kinds) {
            self.problem(TableId::Pauses, hex(name), "names an unknown queue or kind");
        }
        if stop.until.is_some() != stopped.is_hold() {
            self.problem(TableId::Pauses, hex(name), "a hold ends, a pause does not");
        }
        Ok(())
    }
}
