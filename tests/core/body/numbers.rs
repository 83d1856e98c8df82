// SPDX-License-Identifier: Apache-2.0
//! Numbers are exact to a millionth, rounded up, and between 0 and 10^12.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::body::{Form, MAX_MILLIONTHS};

use super::{decimal, found};
use crate::table;

#[test]
fn numbers() {
    let (nines, zeros) = ("9".repeat(400), "0".repeat(400));
    let greatest = decimal(MAX_MILLIONTHS);
    assert_eq!(greatest, "1000000000000");
    let rows: Vec<(&str, String, &str)> = [
        ("0", "0"),
        ("-0", "0"),
        ("12", "12"),
        ("-3", "-3"),
        ("-3e9", "-3000000000"),
        ("-0.0e7", "0"),
        ("-7.5", "-7.5"),
        ("-1e-9", "-0.000001"),
        ("-1e400", "-1000000000000"),
        ("1.5", "1.5"),
        ("1e3", "1000"),
        ("1E+2", "100"),
        ("1e0", "1"),
        ("12.5e1", "125"),
        ("12.345e2", "1234.5"),
        ("125e-2", "1.25"),
        ("0.000001", "0.000001"),
        ("1e-6", "0.000001"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.300001"),
        ("2.0000000", "2"),
        // Rounded up.
        ("0.0000001", "0.000001"),
        ("1.0000001", "1.000001"),
        ("0.9999999", "1"),
        ("1e-7", "0.000001"),
        ("1e-400", "0.000001"),
        ("1e-999999999999999999999999", "0.000001"),
        ("0e-5", "0"),
        // No further than 10^12.
        ("999999999999.999999", "999999999999.999999"),
        ("999999999999.9999991", "1000000000000"),
        ("1000000000000", "1000000000000"),
        ("1000000000000.000001", "1000000000000"),
        ("18446744073709551615", "1000000000000"),
        ("18446744073709551616", "1000000000000"),
        ("1e11", "100000000000"),
        ("1e12", "1000000000000"),
        ("1e13", "1000000000000"),
        ("1e400", "1000000000000"),
        ("1e999999999999999999999999", "1000000000000"),
        ("0e400", "0"),
        ("0.0e999999999999999999999999", "0"),
        // More digits than 64 bits have.
        ("1.0000000000000000000000000000", "1"),
        ("1.0000000000000000000000000001", "1.000001"),
        ("123456.7890123456789012345678901", "123456.789013"),
        ("1234567890123456789012e-12", "1234567890.123457"),
        ("1234567890000000000000e-12", "1234567890"),
        ("1234567890000000000001e-12", "1234567890.000001"),
        ("9999999999999999999e-19", "1"),
        ("9999999999999999999e-20", "0.1"),
        ("10000000000000000001e-20", "0.100001"),
        ("1000000000000000000e-18", "1"),
        ("0.0000000000000000000000000000000000001e38", "10"),
    ]
    .into_iter()
    .map(|(number, wanted)| (number, number.to_owned(), wanted))
    .chain([
        ("400 digits", nines.clone(), greatest.as_str()),
        ("400 decimal places", format!("0.{nines}"), "1"),
        ("400 zeros before a digit", format!("0.{zeros}5e401"), "5"),
        ("400 zeros after a digit", format!("5{zeros}e-400"), "5"),
        ("400 zeros after a digit, one decimal place less", format!("5{zeros}e-401"), "0.5"),
        ("400 decimal places that are 0", format!("7.{zeros}"), "7"),
        ("400 decimal places that are nearly 0", format!("7.{zeros}1"), "7.000001"),
        ("400 digits in the exponent", format!("7e{zeros}1"), "70"),
        ("400 digits in the exponent, all 9", format!("7e-{nines}"), "0.000001"),
    ])
    .collect();
    table::each(rows.into_iter().flat_map(|(name, number, wanted)| {
        let wanted = format!("ok: {wanted}");
        // A number ends with the byte after it.
        ["", " ", ",1"].map(|after| {
            let body = format!("[{number}{after}]");
            (format!("{name} before {after:?}"), found(Form::Json, &["[0]"], body.as_bytes()), wanted.clone())
        })
    }));
}
