//! The grammar of RFC 3261 §25.1 for the compared values. It is as strict as the RFC and written
//! independently of our parser. The parsers may differ on text that violates it.

/// Returns whether the header value that `field` is taken from follows its grammar.
pub fn follows(field: &str, value: &str) -> bool {
    let value = value.trim_matches([' ', '\t', '\r', '\n']);
    match field {
        "cseq number" | "cseq method" => {
            let mut words = value.split_whitespace();
            let number = words.next().is_some_and(|word| is_number(word, (1 << 31) - 1));
            number && words.next().is_some_and(is_token) && words.next().is_none()
        }
        "max-forwards" => is_number(value, 255),
        "content-length" => is_number(value, u32::MAX.into()),
        "call-id" => {
            let parts: Vec<_> = value.split('@').collect();
            parts.len() <= 2 && parts.iter().all(|part| is_word(part))
        }
        "from tag" | "to tag" => is_address(value),
        "route lines" | "record-route lines" => true,
        _ => split(value, ',').is_some_and(|vias| vias.into_iter().all(is_via)),
    }
}

fn is_number(text: &str, max: u64) -> bool {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let significant = text.trim_start_matches('0');
    digits && (significant.is_empty() || significant.parse::<u64>().is_ok_and(|n| n <= max))
}

pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-.!%*_+`'~".contains(c))
}

fn is_word(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-.!%*_+`'~()<>:\\\"/[]?{}".contains(c);
    !text.is_empty() && text.chars().all(legal)
}

fn is_host(text: &str) -> bool {
    if let Some(inside) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inside.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let label = |label: &str| {
        let legal = label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        legal && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    let is_name = text.split('.').all(label) && last.starts_with(|c: char| c.is_ascii_alphabetic());
    is_name || text.parse::<std::net::Ipv4Addr>().is_ok()
}

fn is_host_port(text: &str) -> bool {
    let (host, port) = match text.rfind(':').filter(|at| !text[*at..].contains(']')) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    is_host(host.trim()) && port.is_none_or(|port| is_number(port.trim(), 65_535))
}

fn is_address(value: &str) -> bool {
    let (uri, params) = match value.find('<').filter(|_| !is_bare(value)) {
        Some(_) => {
            let Some((display, rest)) = split_display(value) else { return false };
            let tokens = display.split_whitespace().all(is_token);
            let Some((uri, params)) = rest.split_once('>') else { return false };
            if !tokens && !is_quoted(display.trim()) {
                return false;
            }
            (uri, params)
        }
        None => {
            let end = value.find(';').unwrap_or(value.len());
            if value[..end].contains([',', '?']) {
                return false;
            }
            value.split_at(end)
        }
    };
    let is_uri = uri.split_once(':').is_some_and(|(scheme, rest)| {
        let sip = matches!(&*scheme.to_ascii_lowercase(), "sip" | "sips");
        let host = rest.rsplit('@').next().unwrap_or_default();
        let host = &host[..host.find([';', '?']).unwrap_or(host.len())];
        let graphic = rest.chars().all(|c| c.is_ascii_graphic() && !"<>\"\\^`{|}".contains(c));
        is_token(scheme) && graphic && rest.matches('@').count() < 2 && (!sip || is_host_port(host))
    });
    is_uri && are_params(params.trim())
}

fn is_bare(value: &str) -> bool {
    let first = value.find(['<', '"', ':', ';']).map(|at| value.as_bytes()[at]);
    matches!(first, Some(b':' | b';'))
}

/// Returns the text before the first angle bracket outside quotes, and the text after it.
fn split_display(value: &str) -> Option<(&str, &str)> {
    let parts = split(value, '<')?;
    let display = *parts.first()?;
    Some((display, value.get(display.len() + 1..)?))
}

fn is_quoted(text: &str) -> bool {
    let Some(inside) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return false;
    };
    let mut escaped = false;
    let bare = inside.chars().any(|c| {
        let is_bare = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        is_bare
    });
    !bare && !escaped
}

fn is_via(via: &str) -> bool {
    let Some(parts) = split(via, ';') else { return false };
    let Some((protocol, sent_by)) = parts[0].trim().rsplit_once('/') else { return false };
    let protocol: Vec<_> = protocol.split('/').map(str::trim).collect();
    let Some((transport, sent_by)) = sent_by.trim_start().split_once([' ', '\t', '\r']) else {
        return false;
    };
    let named = protocol.len() == 2 && protocol.iter().all(|part| is_token(part));
    named && is_token(transport) && is_host_port(sent_by.trim()) && all_params(&parts[1..])
}

fn are_params(text: &str) -> bool {
    split(text, ';').is_some_and(|parts| parts[0].trim().is_empty() && all_params(&parts[1..]))
}

/// RFC 3261 §7.3.1: "any given parameter-name MUST NOT appear more than once."
fn all_params(parts: &[&str]) -> bool {
    let name = |part: &str| part.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
    let names: Vec<_> = parts.iter().map(|part| name(part)).collect();
    let once = names.iter().enumerate().all(|(i, name)| !names[..i].contains(name));
    once && parts.iter().all(|part| is_param(part))
}

fn is_param(text: &str) -> bool {
    match text.split_once('=') {
        None => is_token(text.trim()),
        Some((name, value)) => {
            let value = value.trim();
            let is_value = is_token(value) || is_host(value) || is_quoted(value);
            // RFC 3261 §25.1: via-received = "received" EQUAL (IPv4address / IPv6address)
            let is_received = value.parse::<std::net::IpAddr>().is_ok();
            is_token(name.trim()) && (is_value || is_received)
        }
    }
}

/// Returns the parts between separators outside quotes, or `None` if a quote stays open.
fn split(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            c if c == separator && !quoted => {
                parts.push(&text[begin..at]);
                begin = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    (!quoted).then_some(parts)
}
