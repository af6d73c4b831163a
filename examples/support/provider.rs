//! A payment provider. It belongs to somebody else: what it has done is in a file of its own, synced before
//! it answers, and stays when the caller dies. It can be asked what became of a key.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What happens to one request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Weather {
    /// It is answered.
    Fine,
    /// It is answered, after so many milliseconds.
    Slow(u64),
    /// HTTP 503, nothing happened.
    Down,
    /// HTTP 429, with `Retry-After` in milliseconds; nothing happened.
    Busy(u64),
    /// HTTP 402; nothing happened, and never will.
    Declined,
    /// It never arrived, and the caller cannot know.
    RequestLost,
    /// It happened, and the caller cannot know.
    ResponseLost,
}

/// Why a request was not answered with a receipt.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    Down,
    Busy(Duration),
    Declined,
    /// No answer came. The provider's name for the request, where one is known.
    Lost(String),
}

/// What the provider did, once per key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) number: u64,
    pub(crate) key: String,
    pub(crate) cents: u64,
}

/// What the provider makes of a key that it has seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// What is sent again is done again.
    IsDone,
    /// It honours keys: what it did the first time is the answer.
    IsAnswered,
}

pub(crate) struct Provider(Mutex<Books>);

struct Books {
    file: File,
    repetition: Repetition,
    /// How often each key was asked for.
    asked: HashMap<String, usize>,
    /// Requests that are being worked on.
    working: HashMap<String, usize>,
    done: Vec<Receipt>,
}

/// What the provider says about a key.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Done(Receipt),
    /// A request has arrived, and there is no telling yet.
    Working,
    Nothing,
}

impl Provider {
    /// Opens the provider's books, or starts them.
    pub(crate) fn open(path: &Path, repetition: Repetition) -> std::io::Result<Self> {
        let (mut asked, mut done) = (HashMap::new(), Vec::new());
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut torn = false;
        for line in BufReader::new(&file).split(b'\n') {
            let line = line?;
            torn = match serde_json::from_slice(&line) {
                Ok(Entry::Asked(key)) => {
                    *asked.entry(key).or_insert(0) += 1;
                    false
                }
                Ok(Entry::Did(receipt)) => {
                    done.push(receipt);
                    false
                }
                // The caller died while the provider, which lives in the same process here, was writing.
                Err(_) => true,
            };
        }
        if torn {
            file.write_all(b"\n")?;
        }
        Ok(Self(Mutex::new(Books { file, repetition, asked, working: HashMap::new(), done })))
    }

    /// Does it; the n-th request for a key meets the n-th
    /// weather, and fine weather after the last.
    pub(crate) fn request(
        &self,
        key: &str,
        cents: u64,
        weather: &[Weather],
    ) -> Result<Receipt, Trouble> {
        let place = {
            let mut books = self.books();
            let place = *books.asked.get(key).unwrap_or(&0);
            books.asked.insert(key.to_owned(), place + 1);
            *books.working.entry(key.to_owned()).or_insert(0) += 1;
            books.write(&Entry::Asked(key.to_owned()));
            place
        };
        let today = weather.get(place).unwrap_or(&Weather::Fine);
        // A bad card does not become a good one because the caller died before it had the answer.
        let declined = weather.iter().take(place).find(|past| matches!(past, Weather::Declined));
        let answer = self.answer(key, cents, declined.unwrap_or(today));
        if let Some(working) = self.books().working.get_mut(key) {
            *working -= 1;
        }
        answer
    }

    fn answer(&self, key: &str, cents: u64, weather: &Weather) -> Result<Receipt, Trouble> {
        let reference = format!("request for {key}");
        match weather {
            Weather::Fine => Ok(self.act(key, cents)),
            Weather::Slow(ms) => {
                std::thread::sleep(Duration::from_millis(*ms));
                Ok(self.act(key, cents))
            }
            Weather::Down => Err(Trouble::Down),
            Weather::Busy(ms) => Err(Trouble::Busy(Duration::from_millis(*ms))),
            Weather::Declined => Err(Trouble::Declined),
            Weather::RequestLost => Err(Trouble::Lost(reference)),
            Weather::ResponseLost => {
                self.act(key, cents);
                Err(Trouble::Lost(reference))
            }
        }
    }

    /// What was done under a key.
    pub(crate) fn find(&self, key: &str) -> Found {
        let books = self.books();
        match books.done.iter().find(|done| done.key == key) {
            Some(receipt) => Found::Done(receipt.clone()),
            None if books.working.get(key).is_some_and(|working| *working > 0) => Found::Working,
            None => Found::Nothing,
        }
    }

    /// Everything that was done, in its order.
    pub(crate) fn all(&self) -> Vec<Receipt> {
        self.books().done.clone()
    }

    fn act(&self, key: &str, cents: u64) -> Receipt {
        let mut books = self.books();
        let earlier = books.done.iter().find(|done| done.key == key);
        if let (Some(earlier), Repetition::IsAnswered) = (earlier, books.repetition) {
            return earlier.clone();
        }
        let number = books.done.len() as u64 + 1;
        let receipt = Receipt { number, key: key.to_owned(), cents };
        books.write(&Entry::Did(receipt.clone()));
        books.done.push(receipt.clone());
        receipt
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[derive(Serialize, Deserialize)]
enum Entry {
    Asked(String),
    Did(Receipt),
}

impl Books {
    fn write(&mut self, entry: &Entry) {
        let line = serde_json::to_string(entry).map(|line| line + "\n");
        let written = line
            .map_err(std::io::Error::from)
            .and_then(|line| self.file.write_all(line.as_bytes()))
            .and_then(|()| self.file.sync_data());
        // A provider that cannot keep its books has closed.
        if let Err(error) = written {
            eprintln!("the provider's books: {error}");
            std::process::abort();
        }
    }
}
