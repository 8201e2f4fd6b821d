//! Users, and their contacts: `[[user]]`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use tidegate_sip::Uri;
use toml::Spanned;

use super::aor::Aor;
use super::diagnostic::{Report, quoted};
use super::reach;
use super::tables::listen::ListenDraft;
use super::tables::route::RouteDraft;
use super::tables::user::{UserDraft, UserTable};

/// A user, with the contacts where the user is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's address of record, in the form that look-ups use. Each user has a different one.
    pub aor: Arc<[u8]>,
    /// The URIs of the user's contacts, in the order in which they are tried.
    pub contacts: Vec<String>,
}

/// Returns the user, or `None` when a key is missing or invalid.
pub(super) fn finish(draft: UserDraft) -> Option<User> {
    let UserTable { aor, contact } = draft.finish()?;
    Some(User { aor: aor.key, contacts: contact.into_iter().map(Spanned::into_inner).collect() })
}

/// Reports users that appear twice, users that no route leads to, and users whose contact is an
/// address of this process. Also reports routes to users if the file has no users.
pub(super) fn check(
    drafts: &[UserDraft],
    routes: &[RouteDraft],
    listeners: &[ListenDraft],
    report: &mut Report,
) {
    let mut seen: HashMap<&[u8], Range<usize>> = HashMap::new();
    for aor in drafts.iter().filter_map(|draft| draft.aor.as_ref()) {
        let Aor { key, .. } = aor.get_ref();
        if let Some(first) = seen.insert(key, aor.span()) {
            report.clash(
                format!(
                    "two `[[user]]` tables have the `aor` {}",
                    quoted(&String::from_utf8_lossy(key))
                ),
                (aor.span(), "listed already"),
                (first, "here"),
                "write all contacts of a user in one `[[user]]`",
            );
        }
    }
    check_routes(drafts, routes, report);
    for contact in
        drafts.iter().filter_map(|draft| draft.contact.as_ref()).flat_map(Spanned::get_ref)
    {
        let Some(address) = address(contact.get_ref()) else { continue };
        if let Some(own) = listeners.iter().find_map(|own| reach::is_own(own, address)) {
            report.clash(
                "the contact is an address of this process",
                (contact.span(), "requests would come back to this process"),
                (own, "this is an address of this process"),
                "write the address of the user's phone",
            );
        }
    }
}

/// Returns the IP address and port of a contact, or `None` if its host is a name.
pub(super) fn address(contact: &str) -> Option<SocketAddr> {
    let uri = Uri::parse(contact.as_bytes()).ok()?;
    Some(SocketAddr::new(uri.host?.ip()?, uri.port_or_default()))
}

fn check_routes(drafts: &[UserDraft], routes: &[RouteDraft], report: &mut Report) {
    if let (Some(to), []) = (routes.iter().find_map(RouteDraft::to_users), drafts) {
        let help = "add `[[user]]` with `aor` and `contact`, or write the name of a pool";
        report.error(
            to,
            "a route leads to `users`, but there is no `[[user]]`",
            "every request would get 404",
            help,
        );
    }
    // One report is enough: there may be many such users.
    let lost = drafts.iter().filter_map(|draft| draft.aor.as_ref()).find(|aor| {
        let Aor { domain, .. } = aor.get_ref();
        !routes.iter().any(|route| route.may_lead_to_users_of(domain))
    });
    if let Some(aor) = lost {
        let help = format!(
            "add `[[route]]` with `domain = [\"{}\"]` and `to = \"users\"`",
            aor.get_ref().domain
        );
        report.error(
            aor.span(),
            "no route leads to this user",
            "no request reaches this user",
            help,
        );
    }
}
