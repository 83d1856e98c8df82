// SPDX-License-Identifier: Apache-2.0
//! Fields of HTML forms in parts (`multipart/form-data`). The hostile rows are forms made to get round a policy.

use std::rc::Rc;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::body::{Ambiguous, Fields, HtmlForm};
use weir::config::Config;

use super::forms::with_form;
use super::policy;
use crate::table::each;

const TYPE: &str = "multipart/form-data; boundary=x-y";
const UNCLEAR: &str = "deny ambiguous 0";

fn by_user() -> Config {
    policy(r#""subject": [{"body_form": {"field": "user"}}]"#)
}

/// A part: the lines of its head, each with an end, and its body. It begins with a delimiter.
fn part(head: &str, body: &str) -> String {
    format!("--x-y\r\n{head}\r\n{body}\r\n")
}

/// The part of a field as browsers write it.
fn field(name: &str, value: &str) -> String {
    part(&format!("Content-Disposition: form-data; name=\"{name}\"\r\n"), value)
}

fn file(name: &str, more: &str) -> String {
    part(&format!("Content-Disposition: form-data; name=\"{name}\"; {more}\r\n"), "eve")
}

fn form(parts: &[String]) -> String {
    [&parts.concat(), "--x-y--\r\n"].concat()
}

/// The rows have parts before or after the field.
#[test]
fn parts() {
    let config = by_user();
    let user = |name: &str| field(name, "eve");
    let ann = field("user", "ann");
    let typed =
        |line: &str| part(&format!("content-disposition: form-data; name=\"user\"\r\n{line}\r\n"), "ann");
    let other = |line: &str| part(&format!("content-disposition: form-data; name=b\r\n{line}\r\n"), "x");
    let head = |line: &str| part(&format!("{line}\r\n"), "eve");
    let escaped = format!("{{p|{}}}", "%20".repeat(8));
    #[rustfmt::skip]
    let rows: Vec<(&str, Vec<String>, &str)> = vec![
        ("a field", vec![ann.clone()], "{p|ann}"),
        ("the last of several", vec![field("a", "1"), field("b", ""), ann.clone()], "{p|ann}"),
        ("none", vec![field("name", "ann")], "{p|%-}"),
        ("no part", vec![], "{p|%-}"),
        ("an empty value", vec![field("user", "")], "{p|}"),
        ("a value of spaces", vec![field("user", "        ")], &escaped),
        ("nothing in it is decoded", vec![field("user", "a+b%41=&c")], "{p|a+b%2541=%26c}"),
        ("lines within it", vec![field("user", "a\r\nb\nc\r")], "{p|a%0D%0Ab%0Ac%0D}"),
        ("hyphens within it", vec![field("user", "\r\n--x-\r\n--\r\n-")], "{p|%0D%0A--x-%0D%0A--%0D%0A-}"),
        ("beyond ASCII", vec![field("user", "ä")], "{p|%C3%A4}"),
        ("some servers ignore case", vec![ann.clone(), user("User")], UNCLEAR),
        ("twice", vec![ann.clone(), user("user")], UNCLEAR),
        ("twice, the same", vec![ann.clone(), ann.clone()], UNCLEAR),
        ("a zero byte", vec![field("user", "ann\0b")], UNCLEAR),
        ("a byte order mark", vec![field("user", "\u{feff}ann")], UNCLEAR),
        ("a byte order mark before the name", vec![ann.clone(), user("\u{feff}user")], UNCLEAR),
        ("a byte more than the longest", vec![field("user", &"a".repeat(1025))], UNCLEAR),
        ("a long value of another", vec![field("b", &"a".repeat(9000)), ann.clone()], "{p|ann}"),
        ("a boundary within a value", vec![field("b", "a--x-y"), ann.clone()], UNCLEAR),
        ("a boundary after LF", vec![field("b", "a\n--x-y\r\nx"), ann.clone()], UNCLEAR),
        ("a boundary after CR", vec![field("b", "a\r--x-y\r\nx"), ann.clone()], UNCLEAR),
        ("a longer boundary", vec![field("b", "a\r\n--x-yz\r\nx"), ann.clone()], UNCLEAR),
        ("a boundary with a space behind it", vec![field("b", "a\r\n--x-y \r\nx"), ann.clone()], UNCLEAR),
        ("a boundary with LF behind it", vec![field("b", "a\r\n--x-y\nx"), ann.clone()], UNCLEAR),
        ("more hyphens before it", vec![field("b", "a\r\n---x-y\r\nx"), ann.clone()], UNCLEAR),
        ("a boundary right after a head", vec!["--x-y\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n".into(), ann.clone()], UNCLEAR),
        ("a boundary within a head", vec!["--x-y\r\ncontent-disposition: form-data; name=\"a\"\r\n".into(), ann.clone()], UNCLEAR),
        ("a boundary as a name", vec![field("--x-y", "a"), ann.clone()], UNCLEAR),
        ("an end within a value", vec![field("b", "a\r\n--x-y--"), ann.clone()], UNCLEAR),
        ("an end within a value, and a line's end", vec![field("b", "a\r\n--x-y--\r\n"), ann.clone()], UNCLEAR),
        // The head.
        ("in small letters", vec![typed("Content-Type: text/plain")], "{p|ann}"),
        ("no quotes", vec![head("Content-Disposition: form-data; name=user")], "{p|eve}"),
        ("no space behind a colon", vec![head("Content-Disposition:form-data; name=\"user\"")], UNCLEAR),
        ("no space behind a semicolon", vec![head("Content-Disposition: form-data;name=\"user\"")], UNCLEAR),
        ("two spaces behind a semicolon", vec![head("Content-Disposition: form-data;  name=\"user\"")], UNCLEAR),
        ("in other capitals", vec![head("CONTENT-DISPOSITION: form-data; name=\"user\"")], UNCLEAR),
        ("a text in UTF-8", vec![typed("content-type: text/plain;charset=UTF-8")], "{p|ann}"),
        ("a text in quoted UTF-8", vec![typed("content-type: text/plain; charset=\"utf-8\"")], "{p|ann}"),
        ("a text in Latin-1, as Apache writes it", vec![typed("Content-Type: text/plain; charset=ISO-8859-1\r\nContent-Transfer-Encoding: 8bit")], "{p|ann}"),
        ("a text in ASCII", vec![typed("Content-Type: text/plain; charset=us-ascii")], "{p|ann}"),
        ("a text in Latin-1, beyond ASCII", vec![part("Content-Disposition: form-data; name=\"user\"\r\nContent-Type: text/plain; charset=ISO-8859-1\r\n", "\u{e4}nn")], UNCLEAR),
        ("a type in capitals, of aiohttp", vec![typed("Content-Type: TEXT/PLAIN")], UNCLEAR),
        ("a text in UTF-7", vec![typed("content-type: text/plain;charset=utf-7")], UNCLEAR),
        ("a text in two charsets", vec![typed("content-type: text/plain;charset=utf-8;charset=utf-7")], UNCLEAR),
        ("another type", vec![typed("content-type: application/json")], UNCLEAR),
        ("a type that is a file for some", vec![typed("content-type: application/octet-stream")], UNCLEAR),
        ("another type of another", vec![other("content-type: a/b"), ann.clone()], "{p|ann}"),
        ("parts within a part", vec![other("content-type: Multipart/mixed; boundary=z"), ann.clone()], UNCLEAR),
        ("pairs within a part", vec![other("content-type: Application/X-WWW-Form-URLencoded"), ann.clone()], UNCLEAR),
        ("a message within a part", vec![other("content-type: message/rfc822"), ann.clone()], UNCLEAR),
        ("a name in a type", vec![other("content-type: a/b; Name=user"), ann.clone()], UNCLEAR),
        ("as it is", vec![typed("content-transfer-encoding: 8bit")], "{p|ann}"),
        ("base64", vec![typed("content-transfer-encoding: base64")], UNCLEAR),
        ("quoted-printable", vec![typed("content-transfer-encoding: Quoted-Printable")], UNCLEAR),
        ("base64 of another", vec![other("content-transfer-encoding: base64"), ann.clone()], "{p|ann}"),
        ("its length", vec![typed("content-length: 3")], "{p|ann}"),
        ("another length", vec![typed("content-length: 2")], UNCLEAR),
        ("the length of another", vec![other("content-length: 99"), ann.clone()], UNCLEAR),
        ("a length with a zero", vec![typed("content-length: 03")], UNCLEAR),
        ("a length with a sign", vec![typed("content-length: +3")], UNCLEAR),
        ("a length that is none", vec![typed("content-length: ")], UNCLEAR),
        ("two lengths", vec![typed("content-length: 3\r\ncontent-length: 3")], UNCLEAR),
        ("another line", vec![typed("x-user: 3")], UNCLEAR),
        ("another line, of another part", vec![other("mime-version: 1.0"), ann.clone()], UNCLEAR),
        ("a folded line", vec![typed("content-type: text/plain;\r\n charset=utf-7")], UNCLEAR),
        ("a folded disposition", vec![head("Content-Disposition: form-data;\r\n name=\"user\"")], UNCLEAR),
        ("a tab", vec![head("Content-Disposition: form-data;\tname=\"user\"")], UNCLEAR),
        ("a space before a colon", vec![head("Content-Disposition : form-data; name=\"user\"")], UNCLEAR),
        ("no colon", vec![head("Content-Disposition"), ann.clone()], UNCLEAR),
        ("no head", vec![part("", "eve"), ann.clone()], UNCLEAR),
        ("a part without a disposition", vec![head("Content-Type: text/plain"), ann.clone()], UNCLEAR),
        (
            "two dispositions",
            vec![head(
                "Content-Disposition: form-data; name=\"b\"\r\nContent-Disposition: form-data; name=\"user\"",
            )],
            UNCLEAR,
        ),
        ("a line that ends with LF", vec![head("Content-Disposition: form-data; name=\"user\"\nContent-Type: text/plain")], UNCLEAR),
        ("a head that ends with LF", vec!["--x-y\r\nContent-Disposition: form-data; name=\"user\"\n\neve\r\n".into()], UNCLEAR),
        ("a line that ends with CR", vec![head("Content-Disposition: form-data; name=\"user\"\rContent-Type: text/plain")], UNCLEAR),
        ("two CRs", vec![head("Content-Disposition: form-data; name=\"user\"\r")], UNCLEAR),
        ("a zero byte in a head", vec![head("Content-Disposition: form-data; name=\"user\0\"")], UNCLEAR),
        ("a head that is too long", vec![field(&"n".repeat(3 * 1024), "x"), ann.clone()], UNCLEAR),
        // The name.
        ("no name", vec![head("Content-Disposition: form-data"), ann.clone()], UNCLEAR),
        ("no name but a file's", vec![head("Content-Disposition: form-data; filename=\"user\""), ann.clone()], UNCLEAR),
        ("two names", vec![head("Content-Disposition: form-data; name=\"b\"; name=\"user\"")], UNCLEAR),
        ("an encoded name", vec![head("Content-Disposition: form-data; name*=utf-8''user"), ann.clone()], UNCLEAR),
        ("an encoded name behind a name", vec![head("Content-Disposition: form-data; name=\"b\"; name*=utf-8''user")], UNCLEAR),
        ("a name in pieces", vec![head("Content-Disposition: form-data; name*0=\"us\"; name*1=\"er\""), ann.clone()], UNCLEAR),
        ("a name in capitals", vec![head("Content-Disposition: form-data; Name=\"user\""), ann.clone()], UNCLEAR),
        ("a name behind a file's", vec![head("Content-Disposition: form-data; filename=\"a\"; name=\"user\""), ann.clone()], UNCLEAR),
        ("another disposition", vec![head("Content-Disposition: attachment; name=\"user\""), ann.clone()], UNCLEAR),
        ("no semicolon", vec![head("Content-Disposition: form-data name=\"user\""), ann.clone()], UNCLEAR),
        ("a semicolon more", vec![head("Content-Disposition: form-data; name=\"user\";"), ann.clone()], UNCLEAR),
        ("something behind a quote", vec![head("Content-Disposition: form-data; name=\"b\"user"), ann.clone()], UNCLEAR),
        ("a quote that is open", vec![head("Content-Disposition: form-data; name=\"user"), ann.clone()], UNCLEAR),
        ("an escape", vec![user("%75ser"), ann.clone()], UNCLEAR),
        ("a quote as browsers write it", vec![user("a%22b"), ann.clone()], UNCLEAR),
        ("an escaped quote", vec![user("user\\\""), ann.clone()], UNCLEAR),
        ("an escaped letter", vec![user("us\\er"), ann.clone()], UNCLEAR),
        ("single quotes", vec![head("Content-Disposition: form-data; name='user'"), ann.clone()], UNCLEAR),
        ("single quotes in double ones", vec![user("'user'"), ann.clone()], UNCLEAR),
        ("an encoded word of mail", vec![user("=?utf-8?q?user?="), ann.clone()], UNCLEAR),
        ("a parameter in a name", vec![user("b; name=user"), ann.clone()], UNCLEAR),
        ("a parameter in a file's name", vec![file("b", "filename=\"a; name=user; \""), ann.clone()], UNCLEAR),
        ("a name that is no UTF-8", vec![field("\u{1}", "x"), ann.clone()], UNCLEAR),
        ("spaces before a name", vec![ann.clone(), user(" user")], UNCLEAR),
        ("spaces behind a name", vec![ann.clone(), user("user ")], UNCLEAR),
        ("a wide space", vec![ann.clone(), user("user\u{3000}")], UNCLEAR),
        ("a list is the field for some", vec![ann.clone(), user("user[]")], UNCLEAR),
        ("a list of no name is the field for some", vec![ann.clone(), user("[user]")], UNCLEAR),
        ("only like it", vec![user("users"), ann.clone(), user("use")], "{p|ann}"),
        ("a slash before a name, of aiohttp", vec![ann.clone(), user("/user")], UNCLEAR),
        ("two slashes alone", vec![user("//user")], UNCLEAR),
        ("a colon behind a name, of Netty", vec![ann.clone(), user("user:")], UNCLEAR),
        ("marks around it", vec![ann.clone(), user(",user;=")], UNCLEAR),
        ("marks elsewhere", vec![user("form:user"), ann.clone(), user("a/user"), user("user=a"), user("/b")], "{p|ann}"),
        ("many marks elsewhere", (0..600).map(|n| field(&format!("f:i{n}"), "1")).chain([ann.clone()]).collect(), "{p|ann}"),
        ("a field that says how to decode", vec![field("_charset_", "utf-7"), ann.clone()], UNCLEAR),
        // Files.
        ("a file beside it", vec![file("b", "filename=\"a (1).txt\""), ann.clone()], "{p|ann}"),
        (
            "a file with a type",
            vec![
                part(
                    "Content-Disposition: form-data; name=\"b\"; filename=\"ä.png\"\r\nContent-Type: image/png\r\n",
                    "\0\u{1}\r\n\r\n--",
                ),
                ann.clone(),
            ],
            "{p|ann}",
        ),
        ("a file with an encoded name, too", vec![file("b", "filename=a.txt; filename*=utf-8''a%20b.txt"), ann.clone()], "{p|ann}"),
        ("a file of the field", vec![file("user", "filename=\"a\"")], UNCLEAR),
        ("a file of the field, too", vec![ann.clone(), file("user", "filename=\"a\"")], UNCLEAR),
        ("a file without a name", vec![file("user", "filename=\"\"")], UNCLEAR),
        ("a file with an encoded name", vec![file("user", "filename*=utf-8''a")], UNCLEAR),
        ("a file's name with a quote", vec![file("b", "filename=\"a\\\"; name=\\\"user\""), ann.clone()], UNCLEAR),
        // Servers that look at no type read pairs.
        ("a pair in a value", vec![field("b", "x&user=eve"), ann.clone()], UNCLEAR),
        ("a pair in the value", vec![field("user", "ann&%75ser=eve&")], UNCLEAR),
        ("a pair in a file's name", vec![file("b", "filename=\"&user[]=eve&\""), ann.clone()], UNCLEAR),
        ("a pair behind many spaces", vec![field("b", &format!("x&{}user=eve", " ".repeat(4000))), ann.clone()], UNCLEAR),
        ("a long line of a table with a wrong escape", vec![field("b", &format!("R&D,5%,{}", "1,".repeat(2000))), ann.clone()], "{p|ann}"),
        ("another pair", vec![field("b", "x&y=eve&users=1&100%"), ann.clone()], "{p|ann}"),
    ];
    each(rows.into_iter().map(|(name, parts, wanted)| {
        let found = with_form(&config, TYPE, form(&parts));
        (name, found, wanted.to_owned())
    }));
}

/// The bytes around the parts.
#[test]
fn bodies() {
    let config = by_user();
    let (ann, eve) = (field("user", "ann"), field("user", "eve"));
    let rows = [
        ("as browsers write it", format!("{ann}--x-y--\r\n"), "{p|ann}"),
        ("without the last line's end", format!("{ann}--x-y--"), "{p|ann}"),
        ("empty", String::new(), "{p|%-}"),
        ("a line's end before it", format!("\r\n{ann}--x-y--\r\n"), UNCLEAR),
        ("text before it", format!("text\r\n{ann}--x-y--\r\n"), UNCLEAR),
        ("hyphens before it", format!("-{ann}--x-y--\r\n"), UNCLEAR),
        (
            "a part before it of another boundary",
            format!("{}{ann}--x-y--\r\n", eve.replace("x-y", "y-z")),
            UNCLEAR,
        ),
        ("text behind it", format!("{ann}--x-y--\r\ntext"), UNCLEAR),
        ("lines' ends behind it", format!("{ann}--x-y--\r\n\r\n\r\n"), "{p|ann}"),
        ("text behind them", format!("{ann}--x-y--\r\n\r\nx"), UNCLEAR),
        ("LF behind them", format!("{ann}--x-y--\r\n\n"), UNCLEAR),
        ("CR behind them", format!("{ann}--x-y--\r\n\r"), UNCLEAR),
        ("a part behind it", format!("{ann}--x-y--\r\n{eve}--x-y--\r\n"), UNCLEAR),
        ("a space behind it", format!("{ann}--x-y-- \r\n"), UNCLEAR),
        ("LF behind it", format!("{ann}--x-y--\n"), UNCLEAR),
        ("CR behind it", format!("{ann}--x-y--\r"), UNCLEAR),
        ("a hyphen is missing", format!("{ann}--x-y-\r\n"), UNCLEAR),
        ("no end", ann.clone(), UNCLEAR),
        ("a delimiter is the end", format!("{ann}--x-y\r\n"), UNCLEAR),
        ("it ends within a head", format!("{ann}--x-y\r\nContent-"), UNCLEAR),
        ("it ends within a value", ann.trim_end().to_owned(), UNCLEAR),
        ("LF everywhere", format!("{ann}--x-y--\r\n").replace("\r\n", "\n"), UNCLEAR),
        ("CR everywhere", format!("{ann}--x-y--\r\n").replace("\r\n", "\r"), UNCLEAR),
        ("another boundary", format!("{ann}--x-y--\r\n").replace("x-y", "x-z"), UNCLEAR),
        ("the boundary without hyphens", format!("{ann}--x-y--\r\n").replace("--x-y", "x-y"), UNCLEAR),
        ("pairs", String::from("user=ann"), UNCLEAR),
    ];
    each(
        rows.iter().map(|(name, body, wanted)| (*name, with_form(&config, TYPE, body), (*wanted).to_owned())),
    );
}

#[test]
fn types() {
    let config = by_user();
    let longest = "b".repeat(70);
    let of_type = |content_type: &str, boundary: &str| {
        with_form(&config, content_type, form(&[field("user", "ann")]).replace("x-y", boundary))
    };
    #[rustfmt::skip]
    let rows = [
        ("as browsers write it", "multipart/form-data; boundary=----WebKitFormBoundary7MA4", "----WebKitFormBoundary7MA4", "{p|ann}"),
        ("no space", "multipart/form-data;boundary=x-y", "x-y", "{p|ann}"),
        ("in capitals", "Multipart/Form-Data; boundary=x-y", "x-y", UNCLEAR),
        ("capitals of the boundary count", "multipart/form-data; boundary=x-y", "X-Y", UNCLEAR),
        ("quoted", "multipart/form-data; boundary=\"x-y\"", "x-y", "{p|ann}"),
        ("quoted, as Qt writes it", "multipart/form-data; boundary=\"boundary_.oOo._Mj/z+A==\"", "boundary_.oOo._Mj/z+A==", "{p|ann}"),
        ("so without quotes", "multipart/form-data; boundary=Mj/z+A==", "Mj/z+A==", UNCLEAR),
        ("quoted, with two for Rack", "multipart/form-data; boundary=\"a/Boundary=x\"", "a/Boundary=x", UNCLEAR),
        ("quoted, of marks alone", "multipart/form-data; boundary=\"/=\"", "/=", UNCLEAR),
        ("quotes are not of it", "multipart/form-data; boundary=\"x-y\"", "\"x-y\"", UNCLEAR),
        ("UTF-8", "multipart/form-data; charset=utf-8; boundary=x-y", "x-y", "{p|ann}"),
        ("another charset", "multipart/form-data; charset=utf-7; boundary=x-y", "x-y", UNCLEAR),
        ("the longest", &format!("multipart/form-data; boundary={longest}"), &longest, "{p|ann}"),
        ("a byte more", &format!("multipart/form-data; boundary={longest}b"), &format!("{longest}b"), UNCLEAR),
        ("none", "multipart/form-data", "x-y", UNCLEAR),
        ("an empty one", "multipart/form-data; boundary=", "", UNCLEAR),
        ("an empty one in quotes", "multipart/form-data; boundary=\"\"", "", UNCLEAR),
        ("two", "multipart/form-data; boundary=x-y; boundary=z", "x-y", UNCLEAR),
        ("twice the same", "multipart/form-data; boundary=x-y; boundary=x-y", "x-y", UNCLEAR),
        ("two, the first is empty", "multipart/form-data; boundary=; boundary=x-y", "x-y", UNCLEAR),
        ("two types", "multipart/form-data; boundary=x-y, multipart/form-data; boundary=z", "x-y", UNCLEAR),
        ("a comma", "multipart/form-data; boundary=x-y,z", "x-y", UNCLEAR),
        ("in pieces", "multipart/form-data; boundary*0=x; boundary*1=-y", "x-y", UNCLEAR),
        ("encoded", "multipart/form-data; boundary*=utf-8''x-y", "x-y", UNCLEAR),
        ("another parameter", "multipart/form-data; a=b; boundary=x-y", "x-y", UNCLEAR),
        ("a name in capitals", "multipart/form-data; Boundary=x-y", "x-y", UNCLEAR),
        ("a space before the sign", "multipart/form-data; boundary =x-y", "x-y", UNCLEAR),
        ("a space behind the sign", "multipart/form-data; boundary= x-y", "x-y", UNCLEAR),
        ("a space behind it", "multipart/form-data; boundary=x-y ; charset=utf-8", "x-y", UNCLEAR),
        ("a space in it", "multipart/form-data; boundary=\"x y\"", "x y", UNCLEAR),
        ("a space before the semicolon", "multipart/form-data ; boundary=x-y", "x-y", UNCLEAR),
        ("a semicolon more", "multipart/form-data; boundary=x-y;", "x-y", UNCLEAR),
        ("an escape", "multipart/form-data; boundary=\"x\\-y\"", "x-y", UNCLEAR),
        ("a quote that is open", "multipart/form-data; boundary=\"x-y", "x-y", UNCLEAR),
        ("an encoded word of mail", "multipart/form-data; boundary=\"=?utf-8?q?x-y?=\"", "x-y", UNCLEAR),
        ("another type with parts", "multipart/mixed; boundary=x-y", "x-y", UNCLEAR),
        ("pairs", "application/x-www-form-urlencoded; boundary=x-y", "x-y", UNCLEAR),
        ("no type", "", "x-y", UNCLEAR),
        ("hyphens alone", "multipart/form-data; boundary=--", "--", "{p|ann}"),
        ("it ends with hyphens", "multipart/form-data; boundary=a--", "a--", "{p|ann}"),
    ];
    each(rows.iter().map(|(name, content_type, boundary, wanted)| {
        (*name, of_type(content_type, boundary), (*wanted).to_owned())
    }));
}

#[test]
fn a_boundary_that_repeats_itself_is_found_everywhere() {
    let config = by_user();
    for boundary in ["a", "aa", "aab", "-a-a", "-", "a-a--a-a-"] {
        for value in ["-", "--", "a", "-a", "a-", "--a", "aa", "a--a"] {
            let content_type = format!("multipart/form-data; boundary={boundary}");
            let delimiter = format!("--{boundary}");
            let body = form(&[field("user", value)]).replace("--x-y", &delimiter);
            let in_value = format!("{value}\r\n");
            let found = with_form(&config, &content_type, &body);
            let wanted = if in_value.contains(&delimiter) || format!("\n{value}").contains(&delimiter) {
                UNCLEAR.to_owned()
            } else {
                format!("{{p|{value}}}")
            };
            assert_eq!(found, wanted, "{boundary} {value}");
        }
    }
}

/// The values read in a form do not depend on where it is cut.
#[test]
fn cut_at_every_byte() {
    let parts = [
        file("b", "filename=\"a.txt\""),
        field("c", "\r\n--x-\r\n"),
        field("user", "ann\r\n--x\r"),
        part("content-disposition: form-data; name=d\r\ncontent-length: 2\r\n", "\r\n"),
    ];
    let good = form(&parts);
    let wrong =
        [good.replace("length: 2", "length: 3"), good.replace("name=d", "name=user"), [&good, "-"].concat()];
    for (body, wanted) in [(&good, Some(Ok(Some("ann\r\n--x\r".to_owned()))))]
        .into_iter()
        .chain(wrong.iter().zip([None, Some(Err(Ambiguous)), None]))
    {
        for cut in 0..=body.len() {
            let (begin, end) = body.as_bytes().split_at(cut);
            assert_eq!(read(&[begin, end]), wanted, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), wanted);
    }
}

/// The field `user` of a form; `None` if the form is unreadable.
fn read(pieces: &[&[u8]]) -> Option<Result<Option<String>, Ambiguous>> {
    let form = HtmlForm::of(TYPE.as_bytes(), b"").unwrap();
    let mut fields = Fields::new(&form, Rc::from([String::from("user")]));
    pieces.iter().for_each(|piece| fields.feed(piece));
    fields.end();
    (!fields.is_unreadable()).then(|| fields.only("user").map(|text| text.map(str::to_owned)))
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::{field, file, form, part, read};
    use crate::tried::tried;

    /// Forms of good parts, with a few pieces put in or taken out anywhere.
    fn forms() -> impl Strategy<Value = Vec<u8>> {
        let good = prop::sample::select(vec![
            field("user", "ann"),
            field("user", ""),
            field("b", "1"),
            file("b", "filename=\"a\""),
            part("content-disposition: form-data; name=b\r\ncontent-type: text/plain\r\n", "x"),
        ]);
        let piece = prop::sample::select(vec![
            "\r\n",
            "\n",
            "\r",
            "--x-y",
            "--x-y\r\n",
            "\r\n--x-y\r\n",
            "\n--x-y\n",
            "--x-y--\r\n",
            "--",
            "-",
            "\"",
            "\\",
            " ",
            ";",
            ":",
            "=",
            "/",
            ",",
            "\r\n\r\n",
            "; name=\"user\"",
            "; filename=\"c\"",
            "user",
            "x",
            "&user=eve",
            "content-disposition: form-data; name=\"user\"\r\n\r\neve\r\n",
        ]);
        let change = (any::<prop::sample::Index>(), 0..3_usize, piece);
        (prop::collection::vec(good, 0..4), prop::collection::vec(change, 0..3)).prop_map(
            |(parts, changes)| {
                let mut body = form(&parts).into_bytes();
                for (place, removed, piece) in changes {
                    let from = place.index(body.len() + 1);
                    // Half of the time nothing is put in.
                    let piece = if removed == 2 { "" } else { piece };
                    body.splice(from..(from + removed).min(body.len()), piece.bytes());
                }
                body
            },
        )
    }

    /// The name that a server makes of a name.
    type Clean = fn(&str) -> String;

    /// Nothing else; without the slashes before it, as aiohttp; with spaces for marks, and then without those around it, as Netty.
    const CLEANED: [Clean; 3] = [
        str::to_owned,
        |name| name.trim_start_matches(['/', '\\']).to_owned(),
        |name| name.replace([':', ',', '=', ';', '\t'], " ").trim().to_owned(),
    ];

    /// The values of `user` that a server reads: one that looks for delimiters as one text, and one that reads lines, as PHP does.
    fn by_server(body: &str, lines: bool, clean: Clean) -> Vec<String> {
        let mut values = Vec::new();
        let mut rest = body;
        loop {
            // A delimiter and the rest of its line.
            let Some(found) = rest.find("--x-y") else { return values };
            let at_line = found == 0 || rest[..found].ends_with('\n');
            rest = &rest[found + 5..];
            let Some(end) = rest.find('\n') else { return values };
            if lines && (!at_line || !rest[..end].trim_end().is_empty()) {
                continue;
            }
            if !lines && rest.starts_with("--") {
                return values;
            }
            rest = &rest[end + 1..];
            // The head: lines that end with LF or CRLF.
            let (mut name, mut is_file) = (None, false);
            loop {
                let Some((line, after)) = rest.split_once('\n') else { return values };
                rest = after;
                let line = line.trim_end_matches('\r');
                if line.is_empty() {
                    break;
                }
                if line.to_ascii_lowercase().starts_with("content-disposition") {
                    // All servers know that a `;` in quotes ends nothing.
                    let mut is_quoted = false;
                    let ends = |byte| {
                        is_quoted ^= byte == '"';
                        byte == ';' && !is_quoted
                    };
                    let parameters =
                        line.split(ends).filter_map(|parameter| parameter.trim().split_once('='));
                    for (key, value) in parameters {
                        let value = value.trim_matches('"');
                        match key {
                            // The first name or the last.
                            "name" if lines || name.is_none() => name = Some(value),
                            "filename" => is_file = true,
                            _ => {}
                        }
                    }
                }
            }
            let end = if lines { "\n--x-y" } else { "--x-y" };
            let Some(end) = rest.find(end) else { return values };
            let value = &rest[..end];
            let value = value.strip_suffix('\n').unwrap_or(value);
            let value = value.strip_suffix('\r').unwrap_or(value);
            if name.map(clean).as_deref() == Some("user") && !is_file {
                values.push(value.to_owned());
            }
            rest = &rest[end..];
        }
    }

    /// If weir has a value, every server has that value; if weir says that there is none, every server finds none. Cuts change nothing.
    #[test]
    fn what_weir_reads_every_server_reads() {
        let (all, known) = (Cell::new(0), Cell::new(0));
        proptest!(tried(4_000), |(body in forms(), mut cuts in prop::collection::vec(0..400_usize, 0..5))| {
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().map(|cut| cut.min(body.len())) {
                pieces.push(&body[from..cut]);
                from = cut;
            }
            pieces.push(&body[from..]);
            let found = read(&[&body]);
            prop_assert_eq!(&read(&pieces), &found);
            all.set(all.get() + 1);
            if let Some(Ok(value)) = found {
                known.set(known.get() + 1);
                let body = std::str::from_utf8(&body).expect("text");
                let read: Vec<_> = value.into_iter().collect();
                for (lines, clean) in CLEANED.into_iter().flat_map(|clean| [(false, clean), (true, clean)]) {
                    prop_assert_eq!(by_server(body, lines, clean), read.clone(), "{}", lines);
                }
            }
        });
        assert!(known.get() > all.get() / 10, "{known:?} of {all:?} forms could be read");
    }

    /// Forms as browsers write them are read.
    #[test]
    fn every_value_is_read() {
        proptest!(tried(1_000), |(
            others in prop::collection::vec(("[a-tv-z0-9 !#$&()*+,./:<>?@^`{|}~-]{0,9}", ".{0,40}"), 0..4),
            value in "[^&\0-\x08\x0b\x0c\x0e-\x1f\u{feff}]{0,200}", place in 0..4_usize,
        )| {
            let mut parts: Vec<_> = others.iter().map(|(name, value)| field(name, value)).collect();
            parts.insert(place.min(parts.len()), field("user", &value));
            prop_assert_eq!(read(&[form(&parts).as_bytes()]), Some(Ok(Some(value))));
        });
    }
}
