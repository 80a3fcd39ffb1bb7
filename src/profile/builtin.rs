//! The profiles that are compiled into the program.

macro_rules! profiles {
    ($($name:literal),*) => {
        /// Name and text of each, in the order of `profile list`.
        pub const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),*];

        /// Name of each, and what stands for its file.
        pub(super) const LABELS: &[(&str, &str)] = &[$(($name, concat!("built-in:", $name))),*];
    };
}

profiles!("base", "default", "strict", "offline-build", "shell");

/// The programs that built-in profiles claim, each behind the profile's name: asked at every launch, so not by reading the
/// profiles. A test holds it against them.
pub(super) const PROGRAMS: &[(&str, &str)] = &[];

/// The text of a built-in profile.
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
