//! Rejects and acknowledges the torture messages of RFC 4475 and RFC 5118 by the fast ways of
//! reading, and compares the results with the complete ones.

mod alike;

use std::fs;
use std::path::PathBuf;

use alike::{acknowledged_alike, rejected_alike};

#[test]
fn the_torture_messages_are_rejected_as_if_read_in_full() {
    let mut others = Vec::new();
    for corpus in ["rfc4475", "rfc5118"] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(corpus);
        for entry in fs::read_dir(folder).expect("a folder of messages") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "dat") {
                let bytes = fs::read(&path).expect("a message");
                acknowledged_alike(&bytes);
                if !rejected_alike(&bytes) {
                    let name = path.file_stem().expect("a name");
                    others.push(name.to_string_lossy().into_owned());
                }
            }
        }
    }
    others.sort();
    // These have no outline: responses, and requests malformed in a part that a reply needs.
    assert_eq!(
        others.join(" "),
        "baddn bcast bigcode insuf lwsruri lwsstart noreason quotbal scalar02 scalarlg trws unreason"
    );
}
