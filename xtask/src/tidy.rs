//! The house rules as functions from the repository's text to findings. A rule never fixes anything. Every rule has a
//! test below that shows it can fail; adding one means adding it to [`RULES`] and showing the same.

use crate::source::{code_only, has_word};
use crate::tree::Tree;

/// A rule: what it is called and what it finds wrong.
type Rule = (&'static str, fn(&Tree) -> Vec<String>);

/// Every rule.
pub(crate) const RULES: [Rule; 12] = [
    ("dependencies_point_down", dependencies_point_down),
    (
        "packages_are_named_after_their_directory",
        packages_are_named_after_their_directory,
    ),
    ("unsafe_stays_home", unsafe_stays_home),
    ("roots_forbid_unsafe", roots_forbid_unsafe),
    ("names_refuse_nothing", names_refuse_nothing),
    ("files_say_what_they_are", files_say_what_they_are),
    ("nothing_is_unfinished", nothing_is_unfinished),
    ("files_fit_a_reader", files_fit_a_reader),
    ("the_code_map_is_true", the_code_map_is_true),
    ("error_codes_are_documented", error_codes_are_documented),
    ("documents_exist", documents_exist),
    ("no_path_of_one_machine", no_path_of_one_machine),
];

/// Every finding of every rule, as `rule: finding`.
pub(crate) fn findings(tree: &Tree) -> Vec<String> {
    let found = RULES
        .iter()
        .flat_map(|(name, rule)| rule(tree).into_iter().map(move |what| format!("{name}: {what}")));
    found.collect()
}

/// Which crates of ours a crate may use. A crate that is not here may use nothing of ours.
const MAY_USE: [(&str, &[&str]); 11] = [
    ("linux", &[]),
    ("image", &[]),
    ("api", &[]),
    ("stub", &[]),
    ("engine", &["linux", "image"]),
    ("files", &["linux", "image"]),
    ("sandbox", &["linux"]),
    ("timeline", &["image", "engine", "files", "sandbox", "linux"]),
    ("node", &["api", "timeline", "sandbox", "image"]),
    ("bench", &["api"]),
    ("cli", &["api", "node", "image", "linux", "bench"]),
];

fn dependencies_point_down(tree: &Tree) -> Vec<String> {
    let ours: Vec<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    let mut findings = Vec::new();
    for (path, manifest) in tree.all().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        let Some(name) = path
            .strip_suffix("/Cargo.toml")
            .and_then(|path| path.rsplit('/').next())
        else {
            continue;
        };
        if name == "tests" {
            continue;
        }
        let allowed = MAY_USE
            .iter()
            .find(|(user, _)| *user == name)
            .map_or(&[][..], |(_, used)| used);
        for used in dependencies(manifest).filter(|used| ours.contains(used) && !allowed.contains(used)) {
            findings.push(format!(
                "{path} uses {used}; {name} may use {allowed:?} (docs/ARCHITECTURE.md)"
            ));
        }
    }
    findings
}

/// Names in the `[dependencies]` and `[build-dependencies]` of a manifest, without the `deltabox-` that a package has.
/// What only tests use is free.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies") && !section.ends_with("dev-dependencies");
            return None;
        }
        if !inside || line.starts_with('#') {
            return None;
        }
        let name = line.split(['=', '.', ' ']).next().filter(|name| !name.is_empty())?;
        Some(name.strip_prefix("deltabox-").unwrap_or(name))
    })
}

fn packages_are_named_after_their_directory(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for name in tree.crates() {
        let manifest = tree.get(&format!("crates/{name}/Cargo.toml")).unwrap_or_default();
        if !manifest.contains(&format!("name = \"deltabox-{name}\"")) {
            findings.push(format!(
                "crates/{name}/Cargo.toml: the package must be called deltabox-{name}"
            ));
        }
        let library = tree.get(&format!("crates/{name}/src/lib.rs")).is_some();
        if library && !manifest.contains(&format!("\nname = \"{name}\"")) {
            findings.push(format!("crates/{name}/Cargo.toml: the library must be called {name}"));
        }
    }
    findings
}

fn may_hold_unsafe(path: &str) -> bool {
    path.starts_with("crates/linux/") || path.starts_with("crates/stub/")
}

fn unsafe_stays_home(tree: &Tree) -> Vec<String> {
    let outside = tree.rust().filter(|(path, _)| !may_hold_unsafe(path));
    let found = outside.filter(|(_, text)| has_word(&code_only(text), "unsafe"));
    found
        .map(|(path, _)| format!("{path}: `unsafe` belongs in crates/linux (or crates/stub)"))
        .collect()
}

fn roots_forbid_unsafe(tree: &Tree) -> Vec<String> {
    let is_root = |path: &str| {
        let package = path
            .strip_suffix("src/lib.rs")
            .or_else(|| path.strip_suffix("src/main.rs"));
        package.is_some_and(|package| tree.get(&format!("{package}Cargo.toml")).is_some())
    };
    let roots = tree.rust().filter(|(path, _)| is_root(path) && !may_hold_unsafe(path));
    let found = roots.filter(|(_, text)| !code_only(text).contains("#![forbid(unsafe_code)]"));
    found
        .map(|(path, _)| format!("{path}: must say #![forbid(unsafe_code)]"))
        .collect()
}

/// A file with such a name cannot refuse anything.
const NAMES_REFUSED: [&str; 14] = [
    "util", "utils", "helper", "helpers", "common", "manager", "managers", "misc", "shared", "core", "base", "types",
    "errors", "traits",
];

fn names_refuse_nothing(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        let mut parts = path.strip_suffix(".rs").unwrap_or(path).split('/');
        if let Some(name) = parts.find(|part| NAMES_REFUSED.contains(part)) {
            findings.push(format!("{path}: `{name}` says nothing; name what it makes or does"));
        }
        let code = code_only(text);
        let words: Vec<&str> = code.split_whitespace().collect();
        for pair in words.windows(2).filter(|pair| pair[0] == "mod") {
            let name = pair[1].trim_end_matches([';', '{']);
            if NAMES_REFUSED.contains(&name) {
                findings.push(format!("{path}: `mod {name}` says nothing; name what it makes or does"));
            }
        }
    }
    findings
}

fn files_say_what_they_are(tree: &Tree) -> Vec<String> {
    let silent = tree.rust().filter(|(_, text)| !text.starts_with("//!"));
    silent
        .map(|(path, _)| format!("{path}: must open with `//!`: what it is and what it never does"))
        .collect()
}

fn nothing_is_unfinished(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        let code = code_only(text);
        for unfinished in ["todo!", "unimplemented!", "#[ignore"] {
            if code.contains(unfinished) {
                findings.push(format!("{path}: {unfinished}"));
            }
        }
    }
    findings
}

/// Lines of a Rust file. 600 is the aim; past this one it is two files.
const LINE_COUNT_MAX: usize = 1000;

fn files_fit_a_reader(tree: &Tree) -> Vec<String> {
    let long = tree.rust().filter(|(_, text)| text.lines().count() > LINE_COUNT_MAX);
    long.map(|(path, text)| format!("{path}: {} lines; {LINE_COUNT_MAX} at most", text.lines().count()))
        .collect()
}

const MAP: &str = "docs/ARCHITECTURE.md";

/// The code map names exactly the crates there are, and every file it names exists.
fn the_code_map_is_true(tree: &Tree) -> Vec<String> {
    let map = tree.get(MAP).unwrap_or_default();
    let mut findings = Vec::new();
    for name in tree.crates() {
        if !map.contains(&format!("`crates/{name}`")) {
            findings.push(format!("{MAP}: the code map does not name `crates/{name}`"));
        }
    }
    for named in map
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|named| !named.contains([' ', '*', '<']))
    {
        let of_ours = ["crates/", "xtask/", "tests/", "bench/", "docs/"]
            .iter()
            .any(|top| named.starts_with(top));
        let exists = tree.get(named).is_some() || tree.files.keys().any(|path| path.starts_with(&directory(named)));
        if of_ours && !exists {
            findings.push(format!("{MAP}: `{named}` does not exist"));
        }
    }
    findings
}

fn directory(name: &str) -> String {
    format!("{}/", name.trim_end_matches('/'))
}

const CODES: &str = "crates/api/src/error.rs";

fn error_codes_are_documented(tree: &Tree) -> Vec<String> {
    let Some(source) = tree.get(CODES) else {
        return Vec::new();
    };
    let readme = tree.get("README.md").unwrap_or_default();
    let Some((variants, _)) = source
        .split_once("pub enum Code {")
        .and_then(|(_, rest)| rest.split_once("\n}"))
    else {
        return vec![format!("{CODES}: `pub enum Code` is not where this rule looks for it")];
    };
    let variants = variants.lines().filter_map(|line| line.trim().strip_suffix(','));
    let missing = variants
        .map(snake_case)
        .filter(|name| !readme.contains(&format!("`{name}`")));
    missing
        .map(|name| format!("README.md: the table of exit codes does not name `{name}`"))
        .collect()
}

fn snake_case(variant: &str) -> String {
    let mut name = String::new();
    for c in variant.chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(c.to_lowercase());
    }
    name
}

/// Documents that a newcomer is sent to, and a line each must hold.
const DOCUMENTS: [(&str, &str); 11] = [
    ("README.md", "cargo run --release -- demo"),
    ("CHANGELOG.md", "## Unreleased"),
    ("CONTRIBUTING.md", "./test"),
    ("AGENTS.md", "./test"),
    ("LICENSE", "Apache License"),
    ("docs/ARCHITECTURE.md", "Speed of light"),
    ("docs/STYLE.md", "# "),
    ("docs/kernel.md", "PAGEMAP_SCAN"),
    ("docs/rollback-semantics.md", "# "),
    ("docs/threat-model.md", "# "),
    ("bench/targets.toml", "[[target]]"),
];

fn documents_exist(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, line) in DOCUMENTS {
        match tree.get(path) {
            None => findings.push(format!("{path} is missing")),
            Some(text) if !text.contains(line) => findings.push(format!("{path} does not say {line:?}")),
            Some(_) => {}
        }
    }
    findings
}

/// Beginnings of paths that exist on one developer's machine only.
const PRIVATE_PATHS: [&str; 5] = [
    concat!("/wo", "rk/wt"),
    concat!("/wo", "rk/main"),
    concat!("/wo", "rk/shared"),
    concat!("/ro", "ot/.cargo"),
    concat!("/tmp/bash", "_"),
];

fn no_path_of_one_machine(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.all().filter(|(path, _)| *path != "Cargo.lock") {
        for (number, line) in text.lines().enumerate() {
            if PRIVATE_PATHS.iter().any(|private| line.contains(private)) {
                findings.push(format!("{path}:{}: a path of one machine", number + 1));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `rule` finds in a tree of one file.
    fn found(rule: fn(&Tree) -> Vec<String>, path: &str, text: &str) -> usize {
        rule(&Tree::from([(path, text)])).len()
    }

    #[test]
    fn an_arrow_up_is_found() {
        let manifest = |uses: &str| format!("[package]\nname = \"deltabox-engine\"\n[dependencies]\n{uses}\n");
        let path = "crates/engine/Cargo.toml";
        assert_eq!(
            found(dependencies_point_down, path, &manifest("linux.workspace = true")),
            0
        );
        assert_eq!(
            found(dependencies_point_down, path, &manifest("timeline.workspace = true")),
            1
        );
        assert_eq!(
            found(
                dependencies_point_down,
                path,
                &manifest("deltabox-api = { path = \"../api\" }")
            ),
            1
        );
        assert_eq!(
            found(dependencies_point_down, path, "[dev-dependencies]\nsandbox = \"1\"\n"),
            0
        );
        assert_eq!(
            found(
                dependencies_point_down,
                "crates/new/Cargo.toml",
                &manifest("linux = \"1\"")
            ),
            1
        );
    }

    #[test]
    fn a_stuttering_package_is_found() {
        let good = "[package]\nname = \"deltabox-files\"\n[lib]\nname = \"files\"\n";
        let rule = packages_are_named_after_their_directory;
        let tree = |manifest| Tree::from([("crates/files/Cargo.toml", manifest), ("crates/files/src/lib.rs", "")]);
        assert!(rule(&tree(good)).is_empty());
        assert_eq!(rule(&tree("[package]\nname = \"files\"\n")).len(), 1);
        assert_eq!(rule(&tree("[package]\nname = \"deltabox-files\"\n")).len(), 1);
    }

    #[test]
    fn unsafe_abroad_is_found() {
        let text = "//! x\nfn f() { unsafe { g() } }";
        assert_eq!(found(unsafe_stays_home, "crates/engine/src/a.rs", text), 1);
        assert_eq!(found(unsafe_stays_home, "crates/linux/src/a.rs", text), 0);
        assert_eq!(
            found(unsafe_stays_home, "crates/engine/src/a.rs", "// unsafe is elsewhere"),
            0
        );
    }

    #[test]
    fn a_root_that_does_not_forbid_is_found() {
        let tree = |root| Tree::from([("crates/a/Cargo.toml", ""), ("crates/a/src/lib.rs", root)]);
        assert_eq!(roots_forbid_unsafe(&tree("//! x\n// #![forbid(unsafe_code)]")).len(), 1);
        assert!(roots_forbid_unsafe(&tree("//! x\n#![forbid(unsafe_code)]")).is_empty());
    }

    #[test]
    fn a_name_that_says_nothing_is_found() {
        assert_eq!(found(names_refuse_nothing, "crates/a/src/utils.rs", ""), 1);
        assert_eq!(found(names_refuse_nothing, "crates/a/src/lib.rs", "pub mod helper;"), 1);
        assert_eq!(found(names_refuse_nothing, "crates/a/src/lib.rs", "mod base { }"), 1);
        assert_eq!(found(names_refuse_nothing, "crates/a/src/pages.rs", "mod tests {}"), 0);
    }

    #[test]
    fn a_silent_file_is_found() {
        assert_eq!(found(files_say_what_they_are, "a.rs", "use x;\n//! late"), 1);
        assert_eq!(found(files_say_what_they_are, "a.rs", "//! it"), 0);
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(found(nothing_is_unfinished, "a.rs", "fn f() { todo!() }"), 1);
        assert_eq!(
            found(
                nothing_is_unfinished,
                "a.rs",
                "#[ignore = \"later\"]\nfn f() { unimplemented!() }"
            ),
            2
        );
        assert_eq!(found(nothing_is_unfinished, "a.rs", "// todo!()"), 0);
    }

    #[test]
    fn a_long_file_is_found() {
        assert_eq!(found(files_fit_a_reader, "a.rs", &"\n".repeat(LINE_COUNT_MAX + 1)), 1);
        assert_eq!(found(files_fit_a_reader, "a.rs", &"\n".repeat(LINE_COUNT_MAX)), 0);
    }

    #[test]
    fn a_code_map_that_lies_is_found() {
        let tree = |map| Tree::from([("crates/a/Cargo.toml", ""), ("crates/a/src/lib.rs", ""), (MAP, map)]);
        assert!(the_code_map_is_true(&tree("`crates/a` and `crates/a/src/lib.rs`")).is_empty());
        assert_eq!(the_code_map_is_true(&tree("nothing")).len(), 1);
        assert_eq!(
            the_code_map_is_true(&tree("`crates/a`, `crates/b`, `crates/a/src/gone.rs`")).len(),
            2
        );
    }

    #[test]
    fn an_undocumented_code_is_found() {
        let codes = "/// What\npub enum Code {\n    /// Not there.\n    NotFound,\n    Busy,\n}\n";
        let tree = |readme| Tree::from([(CODES, codes), ("README.md", readme)]);
        assert_eq!(error_codes_are_documented(&tree("`busy`")), tree_misses("not_found"));
        assert!(error_codes_are_documented(&tree("`not_found`, `busy`")).is_empty());
        assert_eq!(found(error_codes_are_documented, CODES, "struct Code;"), 1);
    }

    fn tree_misses(name: &str) -> Vec<String> {
        vec![format!("README.md: the table of exit codes does not name `{name}`")]
    }

    #[test]
    fn a_missing_document_is_found() {
        let good: Vec<(&str, &str)> = DOCUMENTS.to_vec();
        let mut tree = Tree::default();
        tree.files
            .extend(good.iter().map(|(path, line)| ((*path).to_owned(), (*line).to_owned())));
        assert!(documents_exist(&tree).is_empty());
        tree.files.insert("CHANGELOG.md".to_owned(), String::new());
        tree.files.remove("LICENSE");
        assert_eq!(documents_exist(&tree).len(), 2);
    }

    #[test]
    fn a_private_path_is_found() {
        assert_eq!(
            found(no_path_of_one_machine, "a.md", concat!("see /wo", "rk/main/x")),
            1
        );
        assert_eq!(found(no_path_of_one_machine, "a.md", "see /var/lib/deltabox"), 0);
    }
}
