//! Request methods.

use std::fmt;

/// The method of a request. RFC 3261 §7.1: method names are case-sensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// INVITE (RFC 3261 §13).
    Invite,
    /// ACK (RFC 3261 §17.1.1.3).
    Ack,
    /// BYE (RFC 3261 §15).
    Bye,
    /// CANCEL (RFC 3261 §9).
    Cancel,
    /// OPTIONS (RFC 3261 §11).
    Options,
    /// REGISTER (RFC 3261 §10).
    Register,
    /// MESSAGE (RFC 3428).
    Message,
    /// SUBSCRIBE (RFC 6665).
    Subscribe,
    /// NOTIFY (RFC 6665).
    Notify,
    /// PRACK (RFC 3262).
    Prack,
    /// UPDATE (RFC 3311).
    Update,
    /// INFO (RFC 6086).
    Info,
    /// REFER (RFC 3515).
    Refer,
    /// PUBLISH (RFC 3903).
    Publish,
    /// Any other method. The message itself contains its name.
    Other,
}

impl Method {
    /// Returns the method called `name`.
    #[inline]
    pub fn from_bytes(name: &[u8]) -> Self {
        match name {
            b"INVITE" => Self::Invite,
            b"ACK" => Self::Ack,
            b"BYE" => Self::Bye,
            b"CANCEL" => Self::Cancel,
            b"OPTIONS" => Self::Options,
            b"REGISTER" => Self::Register,
            b"MESSAGE" => Self::Message,
            b"SUBSCRIBE" => Self::Subscribe,
            b"NOTIFY" => Self::Notify,
            b"PRACK" => Self::Prack,
            b"UPDATE" => Self::Update,
            b"INFO" => Self::Info,
            b"REFER" => Self::Refer,
            b"PUBLISH" => Self::Publish,
            _ => Self::Other,
        }
    }

    /// Returns the name on the wire, or empty for [`Other`](Self::Other).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invite => "INVITE",
            Self::Ack => "ACK",
            Self::Bye => "BYE",
            Self::Cancel => "CANCEL",
            Self::Options => "OPTIONS",
            Self::Register => "REGISTER",
            Self::Message => "MESSAGE",
            Self::Subscribe => "SUBSCRIBE",
            Self::Notify => "NOTIFY",
            Self::Prack => "PRACK",
            Self::Update => "UPDATE",
            Self::Info => "INFO",
            Self::Refer => "REFER",
            Self::Publish => "PUBLISH",
            Self::Other => "",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Other { "another method" } else { self.name() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_methods_are_inverse_and_case_matters() {
        let names = "INVITE ACK BYE CANCEL OPTIONS REGISTER MESSAGE SUBSCRIBE NOTIFY PRACK \
                     UPDATE INFO REFER PUBLISH";
        for name in names.split_whitespace() {
            let method = Method::from_bytes(name.as_bytes());
            assert_ne!(method, Method::Other, "{name}");
            assert_eq!(method.name(), name);
            assert_eq!(Method::from_bytes(name.to_lowercase().as_bytes()), Method::Other);
        }
        assert_eq!(
            (Method::Ack.to_string(), Method::Other.to_string()),
            ("ACK".into(), "another method".into())
        );
        assert_eq!(Method::from_bytes(b"INVITES"), Method::Other);
        assert_eq!(Method::from_bytes(b""), Method::Other);
    }
}
