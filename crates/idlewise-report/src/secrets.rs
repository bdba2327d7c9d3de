//! Keeps passwords out of messages and results: those in URLs, as in `https://user:password@host/`, and signatures in
//! their parameters, as of presigned URLs.

use std::borrow::Cow;
use std::ops::Range;

/// One slash too few, as in `http:/me:pw@host`, is still meant as a URL.
const MISTYPED: [&str; 5] = ["http", "https", "s3", "gs", "az"];
/// What stands for a secret.
const HIDDEN: &str = "***";
const SCHEME_END: &str = ":/";
/// How far behind a word a password may reach.
const REACH_BYTE_COUNT: usize = 4096;
/// The names of a query's secret values, in lower case.
const SECRET_NAMES: [&str; 6] = ["sig", "key", "auth", "pwd", "pass", "jwt"];
/// Parts of such names: `X-Amz-Signature`, `access_token`, `AWSAccessKeyId`.
const SECRET_PARTS: [&str; 8] =
    ["signature", "token", "secret", "passw", "credential", "apikey", "accesskey", "session"];

/// Replaces the passwords and signatures of the URLs in a text. A user without a password may be a token, and is
/// replaced too.
///
/// ```
/// use idlewise_report::without_secrets;
///
/// let text = "cannot read https://me:pw@host/log?sig=ab%3D&v=1: refused";
/// assert_eq!(without_secrets(text), "cannot read https://me:***@host/log?sig=***&v=1: refused");
/// ```
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    hidden(text, |_, most| most)
}

/// Like [`without_secrets`], for JSON: what is replaced ends with its string.
pub fn json_without_secrets(text: &str) -> Cow<'_, str> {
    hidden(text, |begun, most| {
        let is_end =
            |&at: &usize| begun[..at].bytes().rev().take_while(|&it| it == b'\\').count() % 2 == 0;
        let mut quotes = begun[most.clone()].match_indices('"').map(|(at, _)| most.start + at);
        most.start..quotes.find(is_end).unwrap_or(most.end)
    })
}

/// `reach` cuts what stands behind a URL's first word to what may belong to it.
fn hidden(text: &str, reach: impl Fn(&str, Range<usize>) -> Range<usize>) -> Cow<'_, str> {
    if url_at(text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = url_at(rest) {
        let (before, begun) = rest.split_at(at);
        let end = word_end(begun, 0);
        let mut most = end..begun.len().min(end + REACH_BYTE_COUNT);
        while !begun.is_char_boundary(most.end) {
            most.end -= 1;
        }
        let line = begun[most.clone()].split('\n').next().unwrap_or_default();
        let behind = reach(begun, end..end + line.len());
        let end = end + password_end(&begun[..end], &begun[behind]);
        shown.push_str(before);
        push_url(&begun[..end], &mut shown);
        rest = &begun[end..];
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

fn word_end(text: &str, from: usize) -> usize {
    let is_end = |c: char| c.is_whitespace() || c == '"';
    text[from..].find(is_end).map_or(text.len(), |at| from + at)
}

/// How much of what stands behind a URL's first word is still the URL: a password may have blanks and quotes, as somebody
/// has typed it.
fn password_end(word: &str, behind: &str) -> usize {
    let mut authority = &word[..word.find(['/', '?', '#']).unwrap_or(word.len())];
    let mut end = 0;
    if !word.contains('@') && !has_port(authority) {
        let Some(at) = behind.find('@') else { return 0 };
        end = word_end(behind, at);
        authority = &behind[at..end];
    } else if !authority.contains(':') || authority.len() < word.len() {
        return 0;
    }
    // The host of a whole URL is followed by a slash, or by nothing with an @.
    if authority.contains('@') && !authority.contains('/') {
        let rest = &behind[end..];
        let until = rest.find('/').unwrap_or(rest.len());
        if let Some(at) = rest[..until].rfind('@') {
            end = word_end(behind, end + at);
        }
    }
    end
}

/// Where the first URL is after its scheme.
fn url_at(text: &str) -> Option<usize> {
    text.match_indices(SCHEME_END).find_map(|(at, _)| {
        let behind = at + SCHEME_END.len();
        match text[behind..].starts_with('/') {
            true => Some(behind + 1),
            false => MISTYPED.iter().any(|scheme| text[..at].ends_with(scheme)).then_some(behind),
        }
    })
}

/// Adds what follows a URL's scheme.
fn push_url(url: &str, shown: &mut String) {
    let authority_end = url.find(['/', '?', '#']).unwrap_or(url.len());
    let user_end = match url[..authority_end].rfind('@') {
        // A password with a slash is wrong, but still a password.
        None if !has_port(&url[..authority_end]) => {
            url.rfind('@').filter(|_| url[..authority_end].contains(':'))
        }
        end => end,
    };
    let host = match user_end {
        Some(end) => {
            if let Some((user, _)) = url[..end].split_once(':') {
                shown.push_str(user);
                shown.push(':');
            }
            shown.push_str(HIDDEN);
            &url[end..]
        }
        None => url,
    };
    let query_at = host.find(['?', '#', ';']).map_or(host.len(), |at| at + 1);
    shown.push_str(&host[..query_at]);
    for part in host[query_at..].split_inclusive(['&', ';', '?', '#']) {
        let end = part.len() - usize::from(part.ends_with(['&', ';', '?', '#']));
        match part[..end].split_once('=') {
            Some((name, value)) if is_secret(name) && !value.is_empty() => {
                shown.push_str(name);
                shown.push('=');
                shown.push_str(HIDDEN);
                shown.push_str(&part[end..]);
            }
            _ => shown.push_str(part),
        }
    }
}

/// Whether what follows an authority's last colon can be a port, or there is none.
fn has_port(authority: &str) -> bool {
    let after_address = authority.rsplit(']').next().unwrap_or_default();
    // A message's own colon may follow.
    after_address
        .split_once(':')
        .is_none_or(|(_, port)| port.trim_end_matches(':').bytes().all(|it| it.is_ascii_digit()))
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '_'], "");
    SECRET_NAMES.contains(&name.as_str()) || SECRET_PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_signatures_are_hidden() {
        for (text, expected) in [
            ("https://u:p@h/x", "https://u:***@h/x"),
            ("https://u:p@h:8080: no answer", "https://u:***@h:8080: no answer"),
            ("s3://token@h", "s3://***@h"),
            ("http:/u:p@h/x and http://v:q@i", "http:/u:***@h/x and http://v:***@i"),
            // An @ and a colon in the password, and one with a slash.
            ("http://u:p@q:r@h/a@b", "http://u:***@h/a@b"),
            ("http://u:p/q@h/x", "http://u:***@h/x"),
            ("(https://u:p@h/) and https://v:q@i", "(https://u:***@h/) and https://v:***@i"),
            (
                "https://h/x?X-Amz-Credential=a%2Fb&X-Amz-Date=1&X-Amz-Signature=c",
                "https://h/x?X-Amz-Credential=***&X-Amz-Date=1&X-Amz-Signature=***",
            ),
            ("https://h/x;token=a/y;v=1?z", "https://h/x;token=***;v=1?z"),
            ("az://h/x?sv=2024&sig=a%3D#token=b", "az://h/x?sv=2024&sig=***#token=***"),
            // Blanks and quotes in the password, also behind an @ in it.
            ("cannot read s3://k:pa ss@b/x: No", "cannot read s3://k:***@b/x: No"),
            ("s3://k:pa\"ss@b/x", "s3://k:***@b/x"),
            ("s3://k:p@a s s@b/x and c@d", "s3://k:***@b/x and c@d"),
            ("s3://k:p@b and s3://k:q@c", "s3://k:***@b and s3://k:***@c"),
            ("s3://k:p q@r s@b/x", "s3://k:***@b/x"),
        ] {
            assert_eq!(without_secrets(text), expected);
            assert_eq!(without_secrets(expected), expected, "a second time");
        }
    }

    #[test]
    fn what_is_hidden_in_json_ends_with_its_string() {
        for (text, expected) in [
            (r#"{"a":"https://u:p@h","b":"c@d"}"#, r#"{"a":"https://u:***@h","b":"c@d"}"#),
            (r#"{"a":"s3://k:p","b":"c@d"}"#, r#"{"a":"s3://k:p","b":"c@d"}"#),
            (r#"["x s3://k:p\"a s@h\\"]"#, r#"["x s3://k:***@h\\"]"#),
        ] {
            assert_eq!(json_without_secrets(text), expected);
        }
    }

    /// Hours, if what is behind were looked at again for each.
    #[test]
    fn many_urls_in_a_line_take_no_time() {
        for text in ["s3://", "@ ", "s3://k:p@a @ ", "s3://k:p "].map(|part| part.repeat(200_000)) {
            assert!(without_secrets(&text).len() <= text.len());
            assert!(json_without_secrets(&text).len() <= text.len());
        }
    }

    #[test]
    fn everything_else_stays() {
        for text in [
            "no URL: a@b:c",
            "s3://bucket/2026-0?/**/*.parquet",
            "s3://b/day=1?/hour=2/x@y",
            "https://h/show_bug.cgi?id=5&design=x",
            "http://[::1]:9000/a@b",
            "http://h:9000: Connection refused, ask a@b",
            "https://example.org: no answer, ask a@b",
            "https://h/@scope/x",
            "://",
            "x://",
            "https://é/ü?ß=ö",
        ] {
            assert_eq!(without_secrets(text), text);
        }
    }
}
