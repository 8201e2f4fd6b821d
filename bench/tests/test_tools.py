import unittest
from pathlib import Path

from tests.scratch import Scratch
from tidegate_bench.tools import language, language_sample, requirements, structure
from tidegate_bench.tools.requirements import Citation, Requirement


class StructureTest(Scratch):
    def crate(self, **files: str) -> Path:
        for name, text in files.items():
            file = self.folder / "src" / (name.replace("__", "/") + ".rs")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return self.folder

    def cycles(self, **files: str) -> list[list[tuple[str, ...]]]:
        return structure.folder_cycles(structure.imports(structure.sources(self.crate(**files))))

    def test_use_trees_name_each_path(self) -> None:
        found = dict(structure.leaves("crate::a::{self, b::{C, D as E}, f}"))
        self.assertEqual(found[("crate", "a")], "a")
        self.assertEqual(found[("crate", "a", "b", "D")], "E")
        self.assertEqual(found[("crate", "a", "f")], "f")

    def test_paths_are_read_from_their_module(self) -> None:
        modules = {(), ("a",), ("a", "b")}
        self.assertEqual(structure.from_root(("super", "x"), ("a", "b"), modules), ("a", "x"))
        self.assertEqual(structure.from_root(("crate", "x"), ("a", "b"), modules), ("x",))
        self.assertEqual(structure.from_root(("b", "X"), ("a",), modules), ("a", "b", "X"))
        self.assertIsNone(structure.from_root(("std", "fmt"), ("a",), modules))

    def test_modules_that_use_each_other_are_a_cycle(self) -> None:
        self.assertEqual(
            self.cycles(lib="mod a; mod b;", a="use crate::b::B;", b="fn f() { crate::a::g(); }"), [[("a",), ("b",)]]
        )

    def test_reexport_does_not_hide_a_cycle(self) -> None:
        self.assertEqual(len(self.cycles(lib="pub use a::A;", a="use crate::b::B;", b="use crate::A;")), 1)

    def test_use_in_one_direction_or_in_a_comment_is_no_cycle(self) -> None:
        self.assertEqual(self.cycles(lib="mod a; mod b;", a="use crate::b::B;", b="// use crate::a::A;\n"), [])

    def test_unit_tests_are_left_out(self) -> None:
        tests = "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"
        self.assertEqual(self.cycles(lib="mod a; mod b;", a="use crate::b::B;", b=tests), [])
        apart = "#[cfg(test)]\nmod checks;\n"
        self.assertEqual(
            self.cycles(lib="mod a; mod b;", a="use crate::b::B;", b=apart, b__checks="use crate::a::A;"), []
        )

    def test_functions_have_their_length_and_owner(self) -> None:
        text = "impl<T> Show for Thing {\n    fn one(&self) {\n        two();\n    }\n    fn two() {}\n}\nfn three();\n"
        lengths, owners = structure.functions({("a",): text})
        self.assertEqual(lengths, [(3, "a", "one"), (1, "a", "two")])
        self.assertEqual(owners, {"Thing": (2, {("a",)})})

    def test_repository_has_no_cycle(self) -> None:
        self.assertEqual(structure.main(["--check"]), 0, self.printed)


class LanguageTest(Scratch):
    def setUp(self) -> None:
        super().setUp()
        self.opening, self.words = language.rules()

    def rust(self, source: str) -> list[int]:
        return [finding.line for finding in language.in_rust("a.rs", source, self.opening, self.words)]

    def test_first_words_count_only_in_the_first_line_of_a_doc_comment(self) -> None:
        self.assertEqual(self.rust("/// Who calls.\nfn f() {}\n"), [1])
        self.assertEqual(self.rust("/// Calls.\n/// Who calls.\nfn f() {}\n"), [])
        self.assertEqual(self.rust("// Who calls.\n"), [])
        self.assertEqual(self.rust("/// Whole messages.\n"), [])

    def test_fields_and_functions_have_the_same_rule(self) -> None:
        self.assertEqual(self.rust("    /// Whether it waits.\n    pub waits: bool,\n"), [1])
        self.assertEqual(self.rust('    /// Whether it waits.\n    WAITS "waits": Flag = Flag;\n'), [1])
        self.assertEqual(self.rust("/// Whether it waits.\npub fn waits() {}\n"), [1])
        self.assertEqual(self.rust("    /// True if it waits.\n    pub waits: bool,\n"), [])

    def test_words_count_in_comments_and_messages(self) -> None:
        self.assertEqual(self.rust("// for want of space\n"), [1])
        self.assertEqual(self.rust('let a = "rejected for want of space";\n'), [1])
        self.assertEqual(self.rust('let whom = "whom";\n'), [])

    def test_quotations_and_code_are_left_out(self) -> None:
        self.assertEqual(self.rust('// "to whom it concerns"\n'), [])
        self.assertEqual(self.rust("/// ```\n/// whom();\n/// ```\n/// whom\n"), [4])
        prose = "To whom?\n\n```\nwhom\n```\n> whom\n`whom`\n"
        self.assertEqual([f.line for f in language.in_prose("a.md", prose, self.words)], [1])

    def test_names_of_functions_have_a_subject(self) -> None:
        self.assertEqual(self.rust("    fn what_waits_is_counted() {\n"), [1])
        self.assertEqual(self.rust("fn calls_that_wait_are_counted() {\n"), [])

    def test_repository_has_no_hard_sentence(self) -> None:
        self.assertEqual((language.main(["--check"]), self.printed), (0, ""))


class LanguageSampleTest(Scratch):
    def test_comment_in_a_code_block_is_not_a_heading(self) -> None:
        self.replace("tidegate_bench.tools.language_sample.ROOT", self.folder)
        words = "word " * 50
        fence = f"```sh\n# starts it\nrun\n\n# {words}\n```"
        text = f"# Title\n\n{words}\n\n## First\n\n{fence}\n\n{words}\n\n## Second\n\n{words}\n"
        (self.folder / "README.md").write_text(text)
        found = [(line, page.split("\n", 1)[0]) for _, line, page in language_sample.pages()]
        self.assertEqual(found, [(1, "# Title"), (5, "## First"), (16, "## Second")])

    def test_literal_begins_only_where_a_string_begins(self) -> None:
        source = """\
// one "comment with a quote
const ACK: &[u8] = b"ACK "; pub(super) const BYE: &[u8] = b"BYE "; const QUOTE: char = '"';
let raw = r#"a raw "string" of words"#; fail("not one word \\"but\\" five");
"""
        texts = [(line, text) for line, _, text in language_sample.literals(source)]
        self.assertEqual(texts, [(3, 'not one word \\"but\\" five')])

    def test_message_that_only_a_bug_or_a_test_shows_is_left_out(self) -> None:
        source = """\
assert!(
    matches!(load, Load { rate: (1), .. }) && name != "a (b;",
    "the load has a rate"
);
let text = found.expect("a text was found");
match text { 1 => panic!("no number can be one"), _ => fail("this number is wrong") }
"""
        texts = [(line, text) for line, _, text in language_sample.literals(source)]
        self.assertEqual(texts, [(6, "this number is wrong")])

    def test_comment_is_shown_with_the_item_it_describes(self) -> None:
        self.replace("tidegate_bench.tools.language_sample.ROOT", self.folder)
        file = self.folder / "crates/io/src/send.rs"
        file.parent.mkdir(parents=True)
        file.write_text("""\
//! Sends datagrams.

/// A socket.
#[derive(Debug)]
pub struct Socket {
    /// Bytes in the buffer,
    /// headers included.
    #[cfg(unix)]
    bytes: usize,
}
""")
        texts = [text for _, _, text in language_sample.comments()]
        self.assertEqual(
            texts,
            [
                "Sends datagrams.",
                "A socket.\n    | pub struct Socket {",
                "Bytes in the buffer,\nheaders included.\n    | pub struct Socket {\n    |     bytes: usize,",
            ],
        )

    def test_doc_comment_of_a_program_is_a_help_text_or_a_comment(self) -> None:
        self.replace("tidegate_bench.tools.language_sample.ROOT", self.folder)
        file = self.folder / "crates/tidegate/src/top.rs"
        file.parent.mkdir(parents=True)
        file.write_text("""\
//! The command `top`.

use clap::Args;

/// Interval between two screens.
const INTERVAL: u64 = 1;

/// Show the load
#[derive(Clone, Args)]
#[command(
    after_help = EXAMPLES,
)]
pub(crate) struct Top {
    /// The address of the process
    #[arg(
        long,
        value_name = "ADDR",
    )]
    pub(crate) address: String,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Unit {
    /// Calls a second
    Rate,
}

/// A screen.
struct Screen {
    /// The number of lines.
    height: usize,
}

impl Top {
    /// Draws a screen.
    fn draw(&self) {}
}
""")
        helps = [text for _, _, text in language_sample.helps()]
        self.assertEqual(helps, ["Show the load", "The address of the process", "Calls a second"])
        self.assertEqual(
            [text for _, _, text in language_sample.comments()],
            [
                "The command `top`.",
                "Interval between two screens.\n    | const INTERVAL: u64 = 1;",
                "A screen.\n    | struct Screen {",
                "The number of lines.\n    | struct Screen {\n    |     height: usize,",
                "Draws a screen.\n    | impl Top {\n    |     fn draw(&self) {}",
            ],
        )

    def test_no_text_of_a_test_is_drawn(self) -> None:
        self.replace("tidegate_bench.tools.language_sample.ROOT", self.folder)
        for path in ("io/src/send.rs", "io/src/send_tests/tls.rs", "io/src/send/tests.rs"):
            file = self.folder / "crates" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        self.assertEqual([str(path) for path, _ in language_sample.sources()], ["crates/io/src/send.rs"])


RFC = """\
3.  Something ..... 9

3.  Something

   A proxy MUST answer "at
   once".  It SHOULD wait.  A word without force.

Author                      Standards Track                    [Page 1]
\f
RFC 9999                        Title                          July 2000

   Each element is REQUIRED to
   listen.

4.  Else

   It MUST NOT talk.
"""


class RequirementsTest(Scratch):
    def cited(self, text: str, rfc: int = 0) -> list[Citation]:
        return list(requirements.cited("a.rs:1", False, rfc, text))

    def test_quotation_follows_its_section(self) -> None:
        [one] = self.cited('RFC 3261 §16.6: "The proxy MUST forward the request."')
        self.assertEqual((one.rfc, one.section), (3261, "16.6"))
        first, second = self.cited('RFC 3261 §16.6: "It MUST do" and §16.7: "It SHOULD do"')
        self.assertEqual((first.section, second.section, second.rfc), ("16.6", "16.7", 3261))

    def test_quotation_without_section_or_force_is_none(self) -> None:
        self.assertEqual(self.cited('RFC 3261: "It MUST do"'), [])
        self.assertEqual(self.cited('RFC 3261 §16.6: "it does"'), [])
        self.assertEqual(self.cited('"It MUST do"'), [])
        self.assertEqual(self.cited('§16.6: "It MUST do"'), [])

    def test_quotation_without_number_has_the_rfc_of_its_file(self) -> None:
        [one] = self.cited('§8.4: "It MUST do"', 6026)
        self.assertEqual((one.rfc, one.section), (6026, "8.4"))

    def test_marks_around_a_word_do_not_end_a_quotation(self) -> None:
        [one] = self.cited('RFC 6026 §8.4: "If it is in the "Completed" state, it MUST end."')
        self.assertEqual(one.quotation, "If it is in the Completed state, it MUST end.")

    def test_quotation_belongs_to_no_sentence_with_the_same_phrase(self) -> None:
        timer_f = "If timer F fires, the TU MUST be informed, and the client transaction MUST transition to the end."
        timer_k = "If Timer K fires while in this state, the client transaction MUST transition to the end."
        sentences = [Requirement(3261, "17.1", number, "MUST", text) for number, text in enumerate((timer_f, timer_k))]

        def of(quotation: str) -> list[int]:
            citation = Citation("a", False, 3261, "17.1", quotation)
            return [one.number for one in sentences if requirements.matches(citation, one)]

        self.assertEqual(of(timer_k), [1])
        self.assertEqual(of("If timer F fires, the TU MUST be informed, [...]"), [0])
        self.assertEqual(of(f"Another sentence comes before. {timer_f} {timer_k}"), [0, 1])
        self.assertEqual(of("it waits and the client transaction MUST transition to nothing"), [])

    def test_consecutive_words_match_in_the_section_or_its_subsections(self) -> None:
        requirement = Requirement(3261, "16.6.1", 1, "MUST", "The proxy MUST forward the request to each target.")

        def matches(section: str, quotation: str, rfc: int = 3261) -> bool:
            return requirements.matches(Citation("a", False, rfc, section, quotation), requirement)

        self.assertTrue(matches("16.6", "proxy MUST forward the  request to"))
        self.assertTrue(matches("16.6.1", "A clause ... MUST forward the request to each target"))
        self.assertFalse(matches("16.6.1", "MUST forward ... to each target"))
        self.assertFalse(matches("16.7", "The proxy MUST forward the request to"))
        self.assertFalse(matches("16.6", "The proxy MUST drop the request to each target"))
        self.assertFalse(matches("16.6", "The proxy MUST forward the request to", rfc=3263))

    def test_citations_determine_the_state_of_a_sentence(self) -> None:
        one = Requirement(3261, "16.6", 1, "MUST", "")
        states = [one.state]
        one.code.append("a.rs:1")
        states.append(one.state)
        one.tests.append("tests/a.rs:1")
        states.append(one.state)
        one.kind = "not ours"
        self.assertEqual([*states, one.state], ["open", "implemented", "proven", "not ours"])

    def test_citation_without_a_sentence_is_stray(self) -> None:
        listed = [Requirement(3261, "16.6", 1, "MUST", "The proxy MUST forward the request to each target.")]
        quotations = (
            "The proxy MUST forward the request to",
            "The proxy MUST sing all day long",
            "It MUST be elsewhere",
        )
        places = zip(("16.6", "16.6", "17.1"), quotations, strict=True)
        given = [Citation(f"a.rs:{n}", n == 0, 3261, *place) for n, place in enumerate(places)]
        self.replace("tidegate_bench.tools.requirements.citations", lambda: iter(given))
        self.assertEqual(requirements.connect(listed), [given[1]])
        self.assertEqual((listed[0].tests, listed[0].code), (["a.rs:0"], []))

    def test_sentences_are_extracted_across_pages(self) -> None:
        lines = list(requirements.extract(9999, RFC, ["3"]))
        self.assertEqual(len(lines), 5)
        self.assertIn('text = "A proxy MUST answer \\"at once\\"."', lines[2])
        self.assertIn('level = "SHOULD"\ntext = "It SHOULD wait."', lines[3])
        self.assertIn('level = "MUST"\ntext = "Each element is REQUIRED to listen."', lines[4])
        end = "Author   Standards Track   [Page 1]\n\f\nRFC 9999   Title"
        cut = f"3.  Rules\n\n   The proxy SHOULD\n\n\n{end}\n\n   give way.\n"
        self.assertIn('text = "The proxy SHOULD give way."', list(requirements.extract(9999, cut, ["3"]))[-1])

    def test_table_counts_by_section(self) -> None:
        listed = [Requirement(3261, section, 1, "MUST", "") for section in ("16.10", "16.2.1", "16.2")]
        rows = list(requirements.table(listed))
        self.assertEqual([row[1] for row in rows[1:]], ["16.2", "16.10", "", ""])
        self.assertEqual(rows[1][3:], ("2", "0", "0", "0", "2", "0", "0", "0"))
        widths = {len(line) for line in requirements.columns(rows)}
        self.assertEqual(len(widths), 1)


class SettledTest(unittest.TestCase):
    def test_rules_name_a_remedy_for_each_word(self) -> None:
        _, words = language.rules()
        self.assertTrue(all(remedy for _, remedy in words))
