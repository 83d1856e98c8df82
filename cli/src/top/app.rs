// SPDX-License-Identifier: Apache-2.0
//! The operator's choices: order, filter, pause, place; and the effects of keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{HotSubject, Model, Row};

/// The longest filter, in characters.
const MAX_FILTER: usize = 40;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Denied,
    Requests,
    Share,
    Name,
}

impl Order {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Requests => "requests",
            Self::Share => "share",
            Self::Name => "name",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Denied => Self::Requests,
            Self::Requests => Self::Share,
            Self::Share => Self::Name,
            Self::Name => Self::Denied,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct App {
    pub order: Order,
    /// The text that the names of shown policies and subjects contain.
    pub filter: String,
    /// True if keys are the filter's text.
    pub is_typing: bool,
    pub is_paused: bool,
    pub shows_help: bool,
    /// The number of policies and subjects above that are not shown.
    pub scroll: usize,
    pub is_over: bool,
}

impl App {
    pub fn press(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            self.is_over |= matches!(key.code, KeyCode::Char('c'));
            return;
        }
        if self.is_typing {
            match key.code {
                KeyCode::Enter => self.is_typing = false,
                KeyCode::Esc => {
                    self.filter.clear();
                    self.is_typing = false;
                }
                KeyCode::Backspace => {
                    self.filter.pop();
                }
                KeyCode::Char(typed) if !typed.is_control() && self.filter.chars().count() < MAX_FILTER => {
                    self.filter.push(typed);
                    self.scroll = 0;
                }
                _ => {}
            }
            return;
        }
        if self.shows_help {
            self.shows_help = false;
            return;
        }
        match key.code {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Esc if self.filter.is_empty() => self.is_over = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Home => self.scroll = 0,
            _ => {}
        }
    }

    fn holds(&self, names: &[&str]) -> bool {
        let wanted = self.filter.to_lowercase();
        names.iter().any(|name| name.to_lowercase().contains(&wanted))
    }

    /// The policies that are shown, in their order.
    pub fn policies(&self, model: &Model) -> Vec<Row> {
        let mut rows = model.policies();
        rows.retain(|row| self.holds(&[&row.name]));
        match self.order {
            Order::Denied => rows.sort_by_key(|row| core::cmp::Reverse((row.denied, row.requests))),
            Order::Requests => rows.sort_by_key(|row| core::cmp::Reverse(row.requests)),
            Order::Share => rows.sort_by_key(|row| core::cmp::Reverse((row.share(), row.denied))),
            Order::Name => {}
        }
        rows
    }

    pub fn hot<'a>(&self, hot: &'a [HotSubject]) -> Vec<&'a HotSubject> {
        hot.iter().filter(|of| self.holds(&[&of.subject, &of.policy])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(app: &mut App, keys: &[KeyCode]) {
        keys.iter().for_each(|key| app.press(KeyEvent::from(*key)));
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let mut app = App::default();
        press(
            &mut app,
            &[KeyCode::Char('s'), KeyCode::Char('p'), KeyCode::Char('j'), KeyCode::Down, KeyCode::Up],
        );
        assert_eq!((app.order, app.is_paused, app.scroll), (Order::Requests, true, 1));
        press(&mut app, &[KeyCode::Char(' '), KeyCode::Char('s'), KeyCode::Char('s'), KeyCode::Char('s')]);
        assert_eq!((app.order, app.is_paused), (Order::Denied, false));
        press(&mut app, &[KeyCode::Char('?'), KeyCode::Char('q')]);
        assert_eq!((app.shows_help, app.is_over), (false, false), "any key ends the help");
        // Text typed into the filter is no command.
        press(&mut app, &"/sqp".chars().map(KeyCode::Char).collect::<Vec<_>>());
        assert_eq!((app.filter.as_str(), app.is_typing, app.is_over, app.scroll), ("sqp", true, false, 0));
        press(&mut app, &[KeyCode::Backspace, KeyCode::Enter, KeyCode::Char('s')]);
        assert_eq!((app.filter.as_str(), app.is_typing, app.order), ("sq", false, Order::Requests));
        press(&mut app, &[KeyCode::Esc]);
        assert_eq!((app.filter.as_str(), app.is_over), ("", false), "the first Esc clears the filter");
        press(&mut app, &[KeyCode::Esc]);
        assert!(app.is_over);
        for end in
            [KeyEvent::from(KeyCode::Char('q')), KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)]
        {
            let mut app = App::default();
            app.press(end);
            assert!(app.is_over);
        }
        let mut app = App { is_typing: true, ..App::default() };
        (0..100).for_each(|_| press(&mut app, &[KeyCode::Char('x')]));
        assert_eq!(app.filter.len(), MAX_FILTER);
    }
}
