// SPDX-License-Identifier: Apache-2.0
//! A browser has no connection to Redis: what commands name of it, without a value.

use super::super::Failure;
use weir::limit::{Ask, Outcome, Permits};
use weir::script::{BadReply, Form, Plan};
use weir::time::Micros;

#[derive(clap::Args)]
pub(in super::super) struct Login;

impl Login {
    pub fn connect_if(&self, _: &[String]) -> Result<Option<Redis>, Failure> {
        Ok(None)
    }
}

pub(in super::super) enum Redis {}

impl Redis {
    pub fn check(&mut self, _: &Plan, _: &[u8], _: Ask, _: Option<Micros>) -> Result<Outcome, Failure> {
        match *self {}
    }

    pub fn settle(&mut self, _: &Plan, _: &[u8], _: i64, _: &Outcome, _: Micros) -> Result<(), Failure> {
        match *self {}
    }

    pub fn renew(&mut self, _: &Plan, _: &[u8], _: &Outcome, _: Micros) -> Result<Outcome, Failure> {
        match *self {}
    }

    pub fn release(&mut self, _: &Plan, _: &[u8], _: &[Permits], _: Micros) -> Result<(), Failure> {
        match *self {}
    }

    pub fn ask(&mut self, _: &[&[u8]]) -> Result<(), Failure> {
        match *self {}
    }

    pub fn run<T>(
        &mut self,
        _: impl Fn(Form, &mut Vec<u8>),
        _: impl FnMut(&weir::resp::Reply<'_>) -> Result<T, BadReply>,
    ) -> Result<T, Failure> {
        match *self {}
    }
}
