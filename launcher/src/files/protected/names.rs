//! The names that stay as they are, and why.

use std::path::Path;

/// When a name is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Always.
    Always,
    /// If the directory that it is in exists: elsewhere nobody reads it.
    Parent,
    /// If it exists.
    Present,
    /// In a home always, elsewhere if the directory that it is in exists.
    HomeOrParent,
    /// In a home always, elsewhere if it exists.
    HomeOrPresent,
}

/// A name.
pub(super) struct Name {
    pub(super) path: &'static str,
    /// When, at the top of a writable directory.
    pub(super) when: When,
    reason: &'static str,
    /// It means something in any directory, since the programs that obey it look for it where they are started.
    pub(super) anywhere: bool,
}

const fn name(path: &'static str, when: When, reason: &'static str) -> Name {
    Name { path, when, reason, anywhere: false }
}

const fn anywhere(path: &'static str, when: When, reason: &'static str) -> Name {
    Name { path, when, reason, anywhere: true }
}

impl Name {
    /// The name below the top of a writable directory: there a program's directory is protected as a whole, since what is
    /// missing in it gets no placeholder.
    pub(super) fn below(&self) -> &Path {
        let path = Path::new(self.path);
        match path.iter().next() {
            Some(first) if self.anywhere => Path::new(first),
            Some(_) | None => path,
        }
    }

    pub(super) fn when_below(&self) -> When {
        // As with git's hooks: a repository that is there is completed to one that cannot be turned against its owner.
        match VERSION_CONTROL.iter().any(|directory| self.below().starts_with(directory)) {
            true => When::Parent,
            false => When::Present,
        }
    }
}

/// Whoever finds one of these in a directory takes it for a repository.
pub(super) const VERSION_CONTROL: &[&str] = &[".git", ".hg", ".jj"];

const SHELL: &str = "a shell runs it when it starts or ends";
const AGENT: &str = "an agent takes commands, permissions or servers to start from it";
const EDITOR: &str = "an editor runs tasks and programs that it names";
const LOGIN: &str = "programs are started from it at the next login";

/// The table. (Version control has more to it: see `Found::repository`.)
pub(super) const NAMES: &[Name] = &[
    name(".bashrc", When::Always, SHELL),
    name(".bash_profile", When::Always, SHELL),
    name(".bash_login", When::Always, SHELL),
    name(".bash_logout", When::Always, SHELL),
    name(".bash_aliases", When::Always, SHELL),
    name(".profile", When::Always, SHELL),
    name(".zshrc", When::Always, SHELL),
    name(".zprofile", When::Always, SHELL),
    name(".zshenv", When::Always, SHELL),
    name(".zlogin", When::Always, SHELL),
    name(".zlogout", When::Always, SHELL),
    name(".kshrc", When::Always, SHELL),
    name(".cshrc", When::Always, SHELL),
    name(".tcshrc", When::Always, SHELL),
    name(".login", When::Always, SHELL),
    name(".config/fish", When::Always, SHELL),
    name(".envrc", When::Present, SHELL),
    name(".xprofile", When::HomeOrPresent, LOGIN),
    name(".xsessionrc", When::HomeOrPresent, LOGIN),
    name(".pam_environment", When::HomeOrPresent, LOGIN),
    name(".ssh", When::HomeOrPresent, "it says who may log in, and which programs ssh starts"),
    name(".config/autostart", When::HomeOrParent, LOGIN),
    name(".config/environment.d", When::HomeOrParent, LOGIN),
    name(".config/systemd/user", When::HomeOrParent, LOGIN),
    name(".local/share/systemd/user", When::HomeOrParent, LOGIN),
    name(".gitconfig", When::Always, "git runs programs that it names: aliases, pagers, monitors"),
    name(".config/git", When::HomeOrParent, "git runs programs that it names: aliases, pagers, monitors"),
    name(".hgrc", When::HomeOrPresent, "Mercurial runs hooks and extensions that it names"),
    name(".hg/hgrc", When::Always, "Mercurial runs hooks and extensions that it names"),
    name(".jj/repo/config.toml", When::Parent, "Jujutsu runs programs that it names"),
    name(".husky", When::Present, "git's hooks, where the project uses husky"),
    anywhere(".claude/settings.json", When::Always, AGENT),
    anywhere(".claude/settings.local.json", When::Always, AGENT),
    anywhere(".claude/commands", When::Always, AGENT),
    anywhere(".claude/agents", When::Always, AGENT),
    anywhere(".claude/hooks", When::Always, AGENT),
    anywhere(".claude/skills", When::Always, AGENT),
    anywhere(".claude.json", When::Present, AGENT),
    anywhere(".mcp.json", When::Always, AGENT),
    anywhere(".codex", When::Always, AGENT),
    anywhere(".cursor", When::Always, AGENT),
    anywhere(".gemini", When::Always, AGENT),
    anywhere(".opencode", When::Always, AGENT),
    anywhere("opencode.json", When::Present, AGENT),
    anywhere("opencode.jsonc", When::Present, AGENT),
    name(".config/opencode", When::HomeOrParent, AGENT),
    anywhere(".hermes", When::Present, AGENT),
    anywhere(".openclaw", When::Present, AGENT),
    anywhere(".vscode", When::Always, EDITOR),
    anywhere(".idea", When::Always, EDITOR),
    anywhere(".zed", When::Present, EDITOR),
    anywhere(".devcontainer", When::Present, EDITOR),
];

/// Those of them that programs read as files. A placeholder that is a directory makes git fail in the home that it is in.
pub(super) const FILES: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".xprofile",
    ".xsessionrc",
    ".pam_environment",
    ".gitconfig",
    ".hgrc",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".mcp.json",
];

/// The names, and why each is protected, for the documentation.
pub fn table() -> impl Iterator<Item = (&'static str, &'static str)> {
    NAMES.iter().map(|name| (name.path, name.reason))
}
