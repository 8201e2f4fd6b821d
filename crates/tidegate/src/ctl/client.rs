//! HTTP client of an admin interface.

use std::time::Duration;

use serde_json::Value;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

use tidegate::trouble::Trouble;

/// Maximum time from a request to the end of its response.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum size of a response in bytes.
const ANSWER_MAX: u64 = 64 << 20;

/// Client of one admin interface.
pub struct Client {
    agent: Agent,
    address: String,
}

impl Client {
    /// Creates a client of the interface at `host:port`.
    pub fn new(address: &str) -> Self {
        let config = Agent::config_builder().timeout_global(Some(PATIENCE)).proxy(None);
        let agent = config.http_status_as_error(false).build().into();
        let address = address.strip_prefix("http://").unwrap_or(address);
        Self { agent, address: address.trim_end_matches('/').to_owned() }
    }

    /// Returns the JSON document at `path`.
    pub fn get(&self, path: &str) -> Result<Value, Trouble> {
        self.read(self.agent.get(self.url(path)).call())
    }

    /// Returns the member `key` of the JSON document at `path`.
    pub(crate) fn get_member(&self, path: &str, key: &str) -> Result<Value, Trouble> {
        let mut document = self.get(path)?;
        document.get_mut(key).map(Value::take).ok_or_else(|| self.foreign())
    }

    /// Sends `value` to `path` with PUT, and returns the response.
    pub fn put(&self, path: &str, value: &Value) -> Result<Value, Trouble> {
        self.read(self.agent.put(self.url(path)).send(value.to_string()))
    }

    /// Drains, disables or enables the back end with the name or address `backend`. `duty` is the
    /// name of this command. Returns all back ends.
    pub fn assign(&self, backend: &str, duty: &str) -> Result<Value, Trouble> {
        // A name or an address consists only of these characters, and each of them is allowed in a
        // path.
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.:[]".contains(c);
        if backend.is_empty() || !backend.chars().all(fits) {
            return Err(Trouble::usage(format!(
                "{backend:?} is neither the name nor the address of a back end; `tidegate ctl \
                 backends` lists them"
            )));
        }
        let backend = backend.replace('[', "%5B").replace(']', "%5D");
        self.read(self.agent.put(self.url(&format!("/backends/{backend}/{duty}"))).send_empty())
    }

    /// Sends a POST without a body to `path`, and returns the response.
    pub fn post(&self, path: &str) -> Result<Value, Trouble> {
        self.read(self.agent.post(self.url(path)).send_empty())
    }

    /// Deletes the resource at `path`, and returns the resources that remain.
    pub fn delete(&self, path: &str) -> Result<Value, Trouble> {
        self.read(self.agent.delete(self.url(path)).call())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the error for an address at which another program than Tidegate answers.
    fn foreign(&self) -> Trouble {
        Trouble::failure(format!(
            "the program at {} is not Tidegate; give the address of Tidegate's admin \
             interface with --admin",
            self.address
        ))
    }

    fn read(&self, answer: Result<Response<Body>, ureq::Error>) -> Result<Value, Trouble> {
        let Self { address, .. } = self;
        let mut answer = answer.map_err(|error| match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
                Trouble::usage(format!("--admin {address}: {error}"))
            }
            ureq::Error::Io(error) => {
                let remedy =
                    "check that Tidegate runs with this `[admin] address`, or use `--admin ADDR`";
                Trouble::failure(format!("no connection to {address}: {error}; {remedy}"))
            }
            error => Trouble::failure(format!("no answer from {address}: {error}")),
        })?;
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_string();
        let text = text.map_err(|error| Trouble::failure(format!("{address}: {error}")))?;
        let said = text.trim_end();
        match status {
            StatusCode::OK => serde_json::from_str(&text).map_err(|_| self.foreign()),
            StatusCode::ACCEPTED => {
                let what = "the command was sent, but not every shard has applied it yet; look \
                            at the state again in a moment";
                Err(Trouble::failure(what))
            }
            StatusCode::BAD_REQUEST | StatusCode::CONFLICT => Err(Trouble::usage(said)),
            status => Err(Trouble::failure(format!("{address}: {status}: {said}"))),
        }
    }
}
