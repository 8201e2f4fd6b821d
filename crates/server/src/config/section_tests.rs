use std::path::Path;

use crate::config::Config;

const BASE: &str = "\
[[listen]]
transport = \"udp\"
address = \"127.0.0.1:5060\"
[[overload.limit]]
from = \"192.0.2.1\"
rate_cps = 5
[[pool]]
name = \"a\"
[[pool.backend]]
uri = \"sip:127.0.0.1:9\"
";

/// Returns the errors in the configuration `text`.
fn errors(text: &str) -> String {
    let read = Config::parse(Path::new("t.toml"), text.as_bytes());
    read.expect_err("the configuration is wrong").to_string()
}

/// A regression: the table was read only if it was the only one of its kind.
#[test]
fn a_misspelt_table_is_read_beside_right_ones() {
    for (added, name) in [
        (
            "[[pol]]\nname = \"b\"\n[[pol.backend]]\nuri = \"sip:127.0.0.1:8\"\n\
             [[route]]\nto = \"b\"\n",
            "pool",
        ),
        (
            "[[listne]]\nname = \"b\"\ntransport = \"tcp\"\naddress = \"127.0.0.1:5060\"\n\
             [[pool]]\nname = \"b\"\nlistener = \"b\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1:8\"\n\
             [[route]]\nto = \"b\"\n",
            "listen",
        ),
        ("[[overload.limits]]\nfrom = \"192.0.2.2\"\nrate_cps = 5\n", "limit"),
        ("[[pool.backnd]]\nuri = \"sip:127.0.0.1:8\"\n", "backend"),
    ] {
        let shown = errors(&format!("{BASE}{added}"));
        assert!(shown.contains(&format!("did you mean `{name}`?")), "{shown}");
        assert!(shown.ends_with("t.toml: 1 error\n"), "{shown}");
    }
    // The error in the table is reported too.
    let limit = "[[overload.limits]]\nfrom = \"192.0.2.0/33\"\nrate_cps = 5\n";
    let shown = errors(&format!("{BASE}{limit}"));
    assert!(shown.ends_with("t.toml: 2 errors\n"), "{shown}");
}

/// A regression: if two letters of a name differed, the table was read as another one, which lacked
/// its keys.
#[test]
fn a_table_with_a_similar_name_is_not_read_as_another_one() {
    for (added, name) in [
        ("[peer]\naddress = \"192.0.2.1\"\n", "user"),
        ("[rate]\nlimit = 5\n", "route"),
        ("[users]\nalice = \"sip:alice@192.0.2.1\"\n", "user"),
        ("[pool.tcp]\nnodelay = true\n", "tls"),
        ("[pool_defaults]\nmode = \"adaptive\"\n", "pool"),
    ] {
        let shown = errors(&format!("{BASE}{added}"));
        assert!(shown.contains(&format!("did you mean `{name}`?")), "{shown}");
        assert!(shown.ends_with("t.toml: 1 error\n"), "{shown}");
    }
    // The table that the file has under another name is not reported as missing.
    let shown = errors(&BASE.replace("pool.backend", "pool.bakcnd"));
    assert!(shown.contains("did you mean `backend`?"), "{shown}");
    assert!(shown.ends_with("t.toml: 1 error\n"), "{shown}");
}

/// A regression: a route to a pool beyond the maximum had the error that there is no such pool.
#[test]
fn tables_beyond_the_maximum_cause_no_further_errors() {
    let pool = |n: u16| {
        format!(
            "[[pool]]\nname = \"p{n}\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1:{}\"\n",
            1000 + n
        )
    };
    let pools: String = (0..256).map(pool).collect();
    let shown = errors(&format!("{BASE}{pools}[[route]]\nto = \"p255\"\n"));
    assert!(shown.contains("error: too many `[[pool]]`"), "{shown}");
    assert!(shown.ends_with("t.toml: 1 error\n"), "{shown}");
}
