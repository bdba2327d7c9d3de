//! The HTML file around the facts: one file that needs no network and runs nothing but its own
//! script.
//!
//! Foreign text (names in recordings, doubts of shared logs) gets into the page in two ways. In the
//! JSON block every character that could end the block, or that a reader could not see, is escaped. In
//! the paragraphs it is made visible and then escaped as HTML. The Content-Security-Policy allows
//! exactly the one script and the one style by their hashes, so that text which got through would still
//! not run.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::packed::PackedColumn;
use crate::shown::{json_shown, shown_in_line};

/// The script of the page, built from `page/src` and checked in.
const SCRIPT: &str = include_str!("../../page/dist/page.js");
/// The style of the page.
const STYLE: &str = include_str!("../../page/dist/page.css");
/// The licences of what is in the script.
const LICENSES: &str = include_str!("../../page/dist/LICENSES.txt");

/// What a reader without JavaScript sees: headings and paragraphs, as plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Heading(String),
    Paragraph(String),
    Items(Vec<String>),
}

/// Returns the whole file.
pub(super) fn html(title: &str, plain: &[Plain], facts: &str, columns: &[PackedColumn]) -> String {
    let size: usize = columns.iter().map(|column| column.base64.len() + 96).sum();
    let mut page = String::with_capacity(size + facts.len() + SCRIPT.len() + STYLE.len() + 4_096);
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src \
         '{}'; style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<!--\n{}\n-->\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <main id=\"page\">\n",
        csp_hash(SCRIPT),
        csp_hash(STYLE),
        text(title),
        commented(LICENSES),
    );
    for part in plain {
        let _ = match part {
            Plain::Heading(heading) => writeln!(page, "<h2>{}</h2>", text(heading)),
            Plain::Paragraph(paragraph) => writeln!(page, "<p>{}</p>", text(paragraph)),
            Plain::Items(items) => {
                page.push_str("<ul>\n");
                for item in items {
                    let _ = writeln!(page, "<li>{}</li>", text(item));
                }
                writeln!(page, "</ul>")
            }
        };
    }
    let _ = writeln!(
        page,
        "</main>\n<script type=\"application/json\" id=\"facts\">{}</script>",
        json(facts)
    );
    for (id, column) in columns.iter().enumerate() {
        let _ = writeln!(
            page,
            "<script type=\"application/octet-stream\" class=\"column\" data-id=\"{id}\">{}</script>",
            column.base64
        );
    }
    let _ = writeln!(page, "<script>{SCRIPT}</script>\n</body>\n</html>");
    page
}

/// The hash of an inline script or style, as a Content-Security-Policy names it.
fn csp_hash(content: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(content)))
}

/// Escapes a JSON document for a `<script>` block, without a change of its meaning. `<` and `>` occur
/// only in strings, so no tag, no comment and no end of the block is left.
fn json(document: &str) -> String {
    json_shown(document).replace('<', "\\u003c").replace('>', "\\u003e")
}

/// Escapes text for HTML. Characters that nobody sees are replaced by visible ones.
fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in shown_in_line(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Text within an HTML comment, which two hyphens would end.
fn commented(text: &str) -> String {
    let mut text = text.trim_end().replace("--", "- -");
    while text.contains("--") {
        text = text.replace("--", "- -");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends a script block, a comment and a paragraph; moves the cursor; turns the direction of text;
    /// separates lines.
    const HOSTILE: &str = "a</script><!--<script>\u{1b}[2J\u{202e}\u{2028}&lt;\"'--></p>]]>";

    #[test]
    fn hostile_text_neither_ends_its_block_nor_hides() {
        let facts = serde_json::to_string(&serde_json::json!({ "title": HOSTILE })).unwrap();
        let plain = [
            Plain::Heading(HOSTILE.into()),
            Plain::Paragraph(HOSTILE.into()),
            Plain::Items(vec![HOSTILE.into()]),
        ];
        let page = html(HOSTILE, &plain, &facts, &[]);
        let ours = html("", &[], "{}", &[]);
        for tag in ["<script", "</script", "<!--", "-->"] {
            assert_eq!(page.matches(tag).count(), ours.matches(tag).count(), "{tag}");
        }
        assert_eq!(page.matches("</p>").count(), 1);
        assert!(!page.contains(['\u{1b}', '\u{202e}', '\u{2028}']));
        let (_, block) = page.split_once("id=\"facts\">").unwrap();
        let (block, _) = block.split_once("</script>").unwrap();
        let read: serde_json::Value = serde_json::from_str(block).unwrap();
        assert_eq!(read["title"], HOSTILE);
    }

    #[test]
    fn the_policy_allows_this_script_and_this_style_and_nothing_else() {
        let page = html("t", &[], "{}", &[]);
        let (_, policy) = page.split_once("content=\"").unwrap();
        let (policy, _) = policy.split_once('"').unwrap();
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        for (begin, end, source) in
            [("<script>", "</script>\n</body>", "script-src"), ("<style>", "</style>", "style-src")]
        {
            let (_, content) = page.split_once(begin).unwrap();
            let (content, _) = content.split_once(end).unwrap();
            let hash = STANDARD.encode(Sha256::digest(content));
            assert!(policy.contains(&format!("{source} 'sha256-{hash}'")), "{policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    }

    /// A script that contains its own end tag would be cut there, and its hash would not match.
    #[test]
    fn script_and_style_do_not_end_themselves() {
        assert!(!SCRIPT.to_ascii_lowercase().contains("</script"));
        assert!(!SCRIPT.contains("<!--"));
        assert!(!STYLE.to_ascii_lowercase().contains("</style"));
    }
}
