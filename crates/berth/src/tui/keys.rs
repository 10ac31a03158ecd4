//! Which key means what. The help text is made of the same list.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::sorting::SortKey;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Quit,
    Help,
    /// Esc: leaves what is open, then the filter.
    Back,
    Details,
    /// Shows the nodes of the cluster, or the host again.
    Cluster,
    Sort(SortKey),
    Reverse,
    StartFilter,
    Type(char),
    Erase,
    AcceptFilter,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// What the help shows, in this order.
pub const HELP: [(&str, &str); 15] = [
    ("m", "sort by memory"),
    ("c", "sort by core use"),
    ("t", "sort by time on the GPU"),
    ("f", "sort by float: what is left until the deadline"),
    ("n", "sort by name"),
    ("g", "sort by GPU"),
    ("r", "reverse the order"),
    ("/", "filter by name, owner, id, image, command"),
    ("↑ ↓ j k", "select; also PgUp PgDn Home End"),
    ("Enter", "details of the selected tenant or node"),
    ("N", "the nodes of the cluster, or this host again"),
    ("Esc", "close, or clear the filter"),
    ("?", "this help"),
    ("q", "quit"),
    ("Ctrl-C", "quit"),
];

/// Ctrl-C.
pub fn is_interrupt(key: &KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c')
}

/// `is_typing`: letters belong to the filter.
pub fn action(key: KeyEvent, is_typing: bool) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return is_interrupt(&key).then_some(Action::Quit);
    }
    match key.code {
        KeyCode::Up => Some(Action::Up),
        KeyCode::Down => Some(Action::Down),
        KeyCode::PageUp => Some(Action::PageUp),
        KeyCode::PageDown => Some(Action::PageDown),
        KeyCode::Home => Some(Action::First),
        KeyCode::End => Some(Action::Last),
        KeyCode::Esc => Some(Action::Back),
        code if is_typing => typing(code),
        code => command(code),
    }
}

fn typing(code: KeyCode) -> Option<Action> {
    match code {
        KeyCode::Enter => Some(Action::AcceptFilter),
        KeyCode::Backspace => Some(Action::Erase),
        KeyCode::Char(c) => Some(Action::Type(c)),
        _ => None,
    }
}

fn command(code: KeyCode) -> Option<Action> {
    match code {
        KeyCode::Enter => Some(Action::Details),
        KeyCode::Char('q') => Some(Action::Quit),
        KeyCode::Char('N') => Some(Action::Cluster),
        KeyCode::Char('?') => Some(Action::Help),
        KeyCode::Char('/') => Some(Action::StartFilter),
        KeyCode::Char('r') => Some(Action::Reverse),
        KeyCode::Char('j') => Some(Action::Down),
        KeyCode::Char('k') => Some(Action::Up),
        KeyCode::Char(c) => SortKey::for_key(c).map(Action::Sort),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, is_typing: bool) -> Option<Action> {
        action(KeyEvent::from(code), is_typing)
    }

    #[test]
    fn letters_belong_to_the_filter_while_it_is_typed() {
        assert_eq!(press(KeyCode::Char('q'), false), Some(Action::Quit));
        assert_eq!(press(KeyCode::Char('q'), true), Some(Action::Type('q')));
        assert_eq!(press(KeyCode::Enter, true), Some(Action::AcceptFilter));
    }

    #[test]
    fn control_c_quits_whatever_is_open() {
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!((action(key, true), action(key, false)), (Some(Action::Quit), Some(Action::Quit)));
    }

    #[test]
    fn every_letter_of_the_help_does_something() {
        let letters = HELP.iter().filter(|(key, _)| key.chars().count() == 1);
        for letter in letters.filter_map(|(key, _)| key.chars().next()) {
            assert!(press(KeyCode::Char(letter), false).is_some(), "{letter}");
        }
    }
}
