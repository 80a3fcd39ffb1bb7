//! The profiles that are compiled into the program.

/// Name and text of each, in the order of `profile list`.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("base", include_str!("../../profiles/base.toml")),
    ("default", include_str!("../../profiles/default.toml")),
    ("strict", include_str!("../../profiles/strict.toml")),
    ("offline-build", include_str!("../../profiles/offline-build.toml")),
    ("shell", include_str!("../../profiles/shell.toml")),
];

/// The programs that built-in profiles claim, each behind the profile's name: asked at every launch, so not by reading the
/// profiles. A test holds it against them.
pub(super) const PROGRAMS: &[(&str, &str)] = &[];

/// The text of a built-in profile.
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
