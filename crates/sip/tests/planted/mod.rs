//! Random well-formed messages with known contents: folds, compact forms, comma lists, quoted
//! strings and white space wherever the grammar allows them.

use proptest::prelude::*;
use proptest::sample::select;

/// A message and the values planted in it.
#[derive(Clone, Debug)]
pub struct Planted {
    pub bytes: Vec<u8>,
    /// Method and Request-URI, or status and reason.
    pub start: Result<(String, String), (u16, String)>,
    /// Branch and sent-by of each hop.
    pub vias: Vec<(Option<String>, String)>,
    pub routes: Vec<String>,
    pub to: Address,
    pub from: Address,
    pub call_id: String,
    pub cseq: (u32, String),
    pub max_forwards: Option<u32>,
    pub body: Vec<u8>,
}

/// A URI with its display name and tag.
#[derive(Clone, Debug)]
pub struct Address {
    pub display: Option<String>,
    pub uri: String,
    pub tag: Option<String>,
}

/// Generates white space where a fold is allowed.
fn lws() -> impl Strategy<Value = &'static str> {
    select(&["", "", "", " ", "\t", "  ", "\r\n ", " \r\n\t"][..])
}

/// Generates white space as [`lws`] does, but at least one character.
fn lws1() -> impl Strategy<Value = &'static str> {
    select(&[" ", " ", "\t", "\r\n ", " \r\n\t "][..])
}

fn token() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9.!%*_+`'~-]{1,12}"
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}(\\.[a-z]{2,6}){0,2}",
        (any::<[u8; 4]>()).prop_map(|[a, b, c, d]| format!("{a}.{b}.{c}.{d}")),
        any::<u128>().prop_map(|bits| format!("[{}]", std::net::Ipv6Addr::from(bits))),
    ]
}

fn uri() -> impl Strategy<Value = String> {
    let user = prop::option::of("[a-z0-9;?/&=+$,._-]{1,8}(:[a-z]{0,4})?");
    let params = select(&["", ";lr", ";transport=udp", ";LR;maddr=192.0.2.1", ";lr=on;x"][..]);
    (user, host(), prop::option::of(1u16..), params).prop_map(|(user, host, port, params)| {
        let user = user.map_or(String::new(), |user| format!("{user}@"));
        let port = port.map_or(String::new(), |port| format!(":{port}"));
        format!("sip:{user}{host}{port}{params}")
    })
}

fn spelling(names: &'static [&'static str]) -> impl Strategy<Value = String> {
    (select(names), any::<u64>(), select(&["", "", "", " ", "\t", "  \t"][..])).prop_map(
        |(name, cases, space)| {
            let fold = |(i, c): (usize, char)| {
                if cases >> i & 1 == 1 { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() }
            };
            let name: String = name.chars().enumerate().map(fold).collect();
            format!("{name}{space}:")
        },
    )
}

/// Distributes values over lines: by commas on one line, and by repeated headers.
fn list(names: &'static [&'static str], values: Vec<String>) -> impl Strategy<Value = Vec<String>> {
    let joints =
        prop::collection::vec((any::<bool>(), lws(), lws(), spelling(names)), values.len());
    joints.prop_map(move |joints| {
        let mut lines: Vec<String> = Vec::new();
        for (value, (join, before, after, name)) in values.iter().zip(joints) {
            match lines.last_mut() {
                Some(line) if join => line.push_str(&format!("{before},{after}{value}")),
                _ => lines.push(format!("{name}{after}{value}{before}")),
            }
        }
        lines
    })
}

fn single(names: &'static [&'static str], value: String) -> BoxedStrategy<Vec<String>> {
    list(names, vec![value]).boxed()
}

fn via() -> impl Strategy<Value = (String, (Option<String>, String))> {
    let branch = prop::option::of(token());
    let port = prop::option::of((lws(), lws(), any::<u16>()));
    let transport = select(&["UDP", "TCP", "tls", "WS", "x-y"][..]);
    let others = select(
        &["", ";rport", ";ttl=1;maddr=192.0.2.1", ";a=\";branch=no,\"", ";received=192.0.2.7"][..],
    );
    (branch, host(), port, transport, others, lws(), lws(), lws1(), any::<bool>()).prop_map(
        |(branch, host, port, transport, others, a, b, c, late)| {
            let port = port.map_or(String::new(), |(d, e, port)| format!("{d}:{e}{port}"));
            let sent_by = format!("{host}{port}");
            let param =
                branch.as_ref().map_or(String::new(), |x| format!("{a};{b}branch{b}={a}{x}"));
            let params = if late { format!("{others}{param}") } else { format!("{param}{others}") };
            (format!("SIP{a}/{b}2.0{b}/{a}{transport}{c}{sent_by}{params}"), (branch, sent_by))
        },
    )
}

fn address() -> impl Strategy<Value = (String, Address)> {
    let display = prop_oneof![
        Just(None),
        "[a-zA-Z0-9]{1,6}( [a-z]{1,5})?".prop_map(Some),
        "([a-z<>;,:@ ]|\\\\\"|\\\\\\\\){0,10}".prop_map(|s| Some(format!("\"{s}\""))),
    ];
    let others = select(&["", ";x", ";q=0.5", ";y=\"<;tag=no>\""][..]);
    (display, uri(), prop::option::of(token()), others, lws(), lws()).prop_map(
        |(display, uri, tag, others, a, b)| {
            let shown = display.as_ref().map_or(String::new(), |d| format!("{d}{a}"));
            let param = tag.as_ref().map_or(String::new(), |t| format!("{a};{b}tag{a}={b}{t}"));
            let text = format!("{shown}<{uri}>{a}{others}{param}");
            let inside = |d: &str| {
                d.strip_prefix('"').and_then(|d| d.strip_suffix('"')).unwrap_or(d).to_owned()
            };
            let display = display.as_deref().map(inside).filter(|d| !d.is_empty());
            (text, Address { display, uri, tag })
        },
    )
}

prop_compose! {
    fn parts(request: BoxedStrategy<bool>)(
        request in request,
        method in prop_oneof![
            select(&["INVITE", "ACK", "BYE", "OPTIONS", "invite"][..]).prop_map(str::to_owned),
            token(),
        ],
        uri in uri(),
        status in 100u16..700,
        reason in "[ -~]{0,12}",
        vias in prop::collection::vec(via(), 1..6),
        routes in prop::collection::vec(address(), 0..4),
        to in address(),
        from in address(),
        call_id in "[!-~]{1,30}",
        cseq in 0u32..1 << 31,
        zeros in "0{0,12}",
        space in lws1(),
        max_forwards in prop::option::of(0u32..256),
        body in prop::collection::vec(any::<u8>(), 0..40),
    ) -> (Planted, Vec<(usize, BoxedStrategy<Vec<String>>)>) {
        let (via_texts, vias): (Vec<_>, Vec<_>) = vias.into_iter().unzip();
        let (route_texts, routes): (Vec<_>, Vec<_>) = routes.into_iter().unzip();
        let cseq_text = format!("{zeros}{cseq}{space}{method}");
        let mut headers = vec![
            (0, list(&["Via", "v"], via_texts).boxed()),
            (1, list(&["Route"], route_texts).boxed()),
            (2, single(&["To", "t"], to.0)),
            (3, single(&["From", "f"], from.0)),
            (4, single(&["Call-ID", "i"], call_id.clone())),
            (5, single(&["CSeq"], cseq_text)),
            (6, single(&["Content-Length", "l"], body.len().to_string())),
            (7, single(&["Subject", "s"], String::new())),
            (8, single(&["X-Via"], "SIP/2.0/UDP nowhere;branch=no".to_owned())),
        ];
        if let Some(n) = max_forwards {
            headers.push((9, single(&["Max-Forwards"], n.to_string())));
        }
        let start = if request { Ok((method.clone(), uri)) } else { Err((status, reason)) };
        let planted = Planted {
            bytes: Vec::new(),
            start,
            vias,
            routes: routes.into_iter().map(|route| route.uri).collect(),
            to: to.1,
            from: from.1,
            call_id,
            cseq: (cseq, method),
            max_forwards,
            body,
        };
        (planted, headers)
    }
}

/// Generates a random well-formed message.
pub fn planted() -> impl Strategy<Value = Planted> {
    message(any::<bool>().boxed())
}

/// Generates a random well-formed request.
pub fn planted_request() -> impl Strategy<Value = Planted> {
    message(Just(true).boxed())
}

fn message(request: BoxedStrategy<bool>) -> impl Strategy<Value = Planted> {
    parts(request)
        .prop_flat_map(|(planted, headers)| {
            let (kinds, lines): (Vec<_>, Vec<_>) = headers.into_iter().unzip();
            lines.prop_flat_map(move |lines| {
                let kinds = kinds.iter().zip(&lines);
                let slots: Vec<usize> =
                    kinds.flat_map(|(&kind, lines)| vec![kind; lines.len()]).collect();
                (Just(planted.clone()), Just(lines), Just(slots).prop_shuffle())
            })
        })
        .prop_map(|(mut planted, lines, slots)| {
            let mut head = match &planted.start {
                Ok((method, uri)) => format!("{method} {uri} SIP/2.0\r\n"),
                Err((status, reason)) => format!("SIP/2.0 {status} {reason}\r\n"),
            };
            // Headers of the same name keep their order. Those of different names do not.
            let mut left: Vec<_> = lines.into_iter().map(Vec::into_iter).collect();
            for kind in slots {
                head.push_str(&left[kind].next().expect("as many slots as lines"));
                head.push_str("\r\n");
            }
            head.push_str("\r\n");
            planted.bytes = head.into_bytes();
            planted.bytes.extend_from_slice(&planted.body);
            planted
        })
}
