//! Finds the targets of a request to a user by the user's contacts, which a store lists.

use std::sync::Arc;

use tidegate_sip::{NameAddr, Uri};
use tidegate_world::{LookupKind, Timestamp};

use super::{LookupOutcome, LookupRequester, Lookups};
use crate::message::contacts::Contacts;
use crate::message::request_uri::cleaned;
use crate::rejection::Rejection;
use crate::resolution::{self, Located, Resolution, TARGETS_MAX, Ticket, Wanted};
use crate::target::Target;

/// The maximum number of contacts of a user that are used for a request.
pub const CONTACTS_MAX: usize = 8;

/// The reason why [`reach`] cannot return the targets of a request.
pub(crate) enum NoTargets {
    /// The request has to wait for the answer to the query of this ticket. If it cannot wait, it
    /// gets this rejection.
    Pending(Ticket, Rejection),
    /// The request gets this rejection, because waiting would not help.
    Rejected(Rejection),
}

/// Finds the targets of a request to the user with the address of record `aor`. The targets are in
/// the order of the user's contacts.
///
/// The request waits only for the DNS answers that decide on the first target. If the name of a
/// later contact is not known yet, the name is queried, and the contact is left out.
pub(crate) fn reach(
    now: Timestamp,
    lookups: &mut Lookups,
    resolution: &mut Resolution,
    aor: &Arc<[u8]>,
    requester: LookupRequester,
    identity: u64,
    may_be: impl Fn(&resolution::Target) -> bool,
) -> Result<(Vec<Target>, Contacts), NoTargets> {
    let value = match lookups.find(now, LookupKind::User, aor, requester) {
        LookupOutcome::Found(value) => value,
        LookupOutcome::Pending(ticket) => {
            return Err(NoTargets::Pending(ticket, Rejection::LOOKUP_FAILED));
        }
        // RFC 3261 §16.5: "If the Request-URI indicates a resource at this proxy that does not
        // exist, the proxy MUST return a 404 (Not Found) response."
        LookupOutcome::NotFound => return Err(NoTargets::Rejected(Rejection::NO_USER)),
        LookupOutcome::Failed => return Err(NoTargets::Rejected(Rejection::LOOKUP_FAILED)),
        LookupOutcome::Rejected => return Err(NoTargets::Rejected(Rejection::PARKED_FULL)),
    };
    let (mut targets, mut contacts) = (Vec::new(), Contacts::default());
    let (mut waits, mut is_unresolved) = (None, false);
    for contact in contacts_of(&value).take(CONTACTS_MAX) {
        let Some(wanted) = Wanted::of(&contact) else { continue };
        match resolution.locate(now, &wanted, identity, &may_be) {
            Located::Targets(located) => {
                let uri = cleaned(&contact, false).unwrap_or_else(|| contact.text.to_vec());
                let uri = Arc::<[u8]>::from(uri);
                let room = TARGETS_MAX - targets.len();
                for target in located.iter().take(room) {
                    targets.push(Target::from(*target));
                    contacts.push(Arc::clone(&uri));
                }
            }
            Located::Pending(ticket) if targets.is_empty() => _ = waits.get_or_insert(ticket),
            Located::Pending(_) | Located::NotFound => {}
            Located::Unavailable => is_unresolved = true,
        }
    }
    match waits {
        Some(ticket) => Err(NoTargets::Pending(ticket, Rejection::UNRESOLVED)),
        None if !targets.is_empty() => Ok((targets, contacts)),
        None if is_unresolved => Err(NoTargets::Rejected(Rejection::UNRESOLVED)),
        // RFC 3261 §16.5: "If the target set remains empty after applying all of the above, the
        // proxy MUST return an error response, which SHOULD be the 480 (Temporarily Unavailable)
        // response."
        None => Err(NoTargets::Rejected(Rejection::NO_CONTACT)),
    }
}

/// Returns the URIs of the contacts in a value of [`LookupKind::User`], which has one contact in
/// each line. Leaves out repeated URIs and invalid lines.
///
/// RFC 3261 §16.5: "If a target URI is already present in the set (based on the definition of
/// equality for the URI type), it MUST NOT be added again."
fn contacts_of(value: &[u8]) -> impl Iterator<Item = Uri<'_>> {
    let uris = || value.split(|&byte| byte == b'\n').filter_map(|line| uri_of(line.trim_ascii()));
    let is_new = move |&(place, uri): &(usize, Uri<'_>)| {
        uris().take(place).all(|before| !before.is_equal(&uri))
    };
    uris().enumerate().filter(is_new).map(|(_, uri)| uri)
}

/// Returns the URI of the contact that a line lists, or `None` if the line lists no contact.
fn uri_of(line: &[u8]) -> Option<Uri<'_>> {
    NameAddr::parse(line)?.parse_uri().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_a_contact_in_each_line() {
        let value = "<sip:a@10.0.0.7:5062;ob>;q=0.7\r\n\nsip:b@phone.example;expires=60\n*\n\
                     \"Desk\" <sip:10.0.0.8>\n<sip:a@10.0.0.7:5062;ob>\n<sip:c d@e>\n";
        let uris: Vec<_> = contacts_of(value.as_bytes()).map(|uri| uri.text).collect();
        let wanted = ["sip:a@10.0.0.7:5062;ob", "sip:b@phone.example", "sip:10.0.0.8"];
        assert_eq!(uris, wanted.map(str::as_bytes));
        assert_eq!(contacts_of(b"").count(), 0);
    }
}
