//! A repository's own `agentbox.toml`. Whoever wrote the repository wrote it, so only what narrows is kept.

use super::error::{Notice, Place};
use super::read::Sheet;
use super::schema::{GitAccess, HomeMode, Limits, Mode, NetMode, Profile};

/// Keeps what narrows; the rest is named in one notice. Limits are kept as they are: the caller takes the lower one.
pub(super) fn narrow(file: &str, sheet: Sheet) -> (Profile, Vec<Notice>) {
    let mut notices = sheet.notices;
    let all = sheet.profile;
    let mut kept = Profile { names: vec![file.to_string()], description: all.description, ..Profile::default() };
    kept.filesystem.hide = all.filesystem.hide;
    kept.filesystem.freeze = all.filesystem.freeze;
    kept.filesystem.home = all.filesystem.home.filter(|home| home.value == HomeMode::ReadOnly);
    kept.filesystem.git = all.filesystem.git.filter(|git| git.value == GitAccess::Ro);
    kept.network.mode = all.network.mode.filter(|mode| mode.value == NetMode::None);
    kept.environment.deny = all.environment.deny;
    // Lower ones of these would leave files without a backup.
    kept.limits = Limits { backup_file: None, backup_total: None, ..all.limits };
    kept.run.mode = all.run.mode.filter(|mode| mode.value == Mode::DryRun);

    let removes = |key: &str| sheet.removals.iter().any(|removal| removal.key == key);
    let dropped: Vec<&(String, u32)> =
        sheet.keys.iter().filter(|(key, _)| removes(key) || !narrows(key, &kept)).collect();
    if let Some((_, line)) = dropped.first() {
        let named: Vec<String> = dropped.iter().map(|(key, line)| format!("{key} (line {line})")).collect();
        let text = format!("widens, ignored: repository files may only narrow: {}", named.join(", "));
        notices.push(Notice { place: Place { file: file.to_string(), line: *line }, text });
    }
    (kept, notices)
}

/// Whether the file's value of this key was kept.
fn narrows(key: &str, kept: &Profile) -> bool {
    match key {
        "description" | "filesystem.hide" | "filesystem.freeze" | "environment.deny" => true,
        "filesystem.home" => kept.filesystem.home.is_some(),
        "filesystem.git" => kept.filesystem.git.is_some(),
        "network.mode" => kept.network.mode.is_some(),
        "run.mode" => kept.run.mode.is_some(),
        "limits.backup_file" | "limits.backup_total" => false,
        other => other.starts_with("limits."),
    }
}
