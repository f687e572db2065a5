//! The documents as mdBook wants them: in one folder, where each has the place that it has in the
//! repository. What a document links to, and is no document of the book, is linked to where the
//! repository is published.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::Failure;

/// The list of the documents, by paths that begin at its folder.
const SUMMARY: &str = "docs/SUMMARY.md";
const PUBLISHED: &str = env!("CARGO_PKG_REPOSITORY");

/// Writes the documents of the summary into a folder; gives their number.
pub(super) fn stage(root: &Path, into: &Path) -> Result<usize, Failure> {
    let summary = fs::read_to_string(root.join(SUMMARY))?;
    let mut book = Book {
        root,
        documents: BTreeSet::new(),
        pictures: BTreeSet::new(),
    };
    links(&summary, |link| {
        book.documents.extend(resolve(Path::new(SUMMARY), link));
        None
    });
    for document in book.documents.clone() {
        let text = fs::read_to_string(root.join(&document))
            .map_err(|e| Failure::new(format!("{SUMMARY} lists {}: {e}", document.display())))?;
        let text = links(&text, |link| book.led(&document, link));
        write(&into.join(page(&document)), text.as_bytes())?;
    }
    let listed = links(&summary, |link| {
        let document = resolve(Path::new(SUMMARY), link)?;
        Some(page(&document).display().to_string())
    });
    write(&into.join("SUMMARY.md"), listed.as_bytes())?;
    for picture in &book.pictures {
        let content = fs::read(root.join(picture))
            .map_err(|e| Failure::new(format!("{} is shown: {e}", picture.display())))?;
        write(&into.join(picture), &content)?;
    }
    Ok(book.documents.len())
}

struct Book<'a> {
    root: &'a Path,
    /// By their paths in the repository, as all here.
    documents: BTreeSet<PathBuf>,
    /// What the documents show.
    pictures: BTreeSet<PathBuf>,
}

impl Book<'_> {
    /// Where a link of a document leads to in the book; none = as it is.
    fn led(&mut self, document: &Path, link: &str) -> Option<String> {
        let target = resolve(document, link)?;
        let (path, anchor) = match link.split_once('#') {
            Some((path, anchor)) => (path, format!("#{anchor}")),
            None => (link, String::new()),
        };
        if path.is_empty() {
            return None;
        }
        if self.documents.contains(&target) {
            return Some(format!("{}{anchor}", page(Path::new(path)).display()));
        }
        let ending = target.extension().and_then(|e| e.to_str());
        if matches!(ending, Some("svg" | "png" | "webp")) {
            self.pictures.insert(target);
            return None;
        }
        let kind = if self.root.join(&target).is_dir() {
            "tree"
        } else {
            "blob"
        };
        Some(format!(
            "{PUBLISHED}/{kind}/main/{}{anchor}",
            target.display()
        ))
    }
}

/// The first document of a folder is its index.
fn page(document: &Path) -> PathBuf {
    match document.file_name().and_then(|name| name.to_str()) {
        Some("README.md") => document.with_file_name("index.md"),
        _ => document.to_owned(),
    }
}

/// The path in the repository that a link of a document means; none for addresses.
fn resolve(document: &Path, link: &str) -> Option<PathBuf> {
    let path = link.split('#').next().unwrap_or_default();
    if path.contains("://") || path.starts_with("mailto:") || path.contains(' ') {
        return None;
    }
    let mut found = document.parent()?.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                if !found.pop() {
                    return None;
                }
            }
            Component::Normal(part) => found.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(found)
}

/// The text with its links replaced: those of Markdown, and of what HTML shows. Code has none.
fn links(text: &str, mut replace: impl FnMut(&str) -> Option<String>) -> String {
    let (mut replaced, mut in_code) = (String::new(), false);
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        if in_code || is_fence {
            replaced.push_str(line);
            continue;
        }
        let mut rest = line;
        while let Some((before, begin, end)) = next(rest) {
            let (link, after) = begin.split_at(begin.find(end).unwrap_or(begin.len()));
            replaced.push_str(before);
            match replace(link) {
                Some(other) => replaced.push_str(&other),
                None => replaced.push_str(link),
            }
            rest = after;
        }
        replaced.push_str(rest);
    }
    replaced
}

/// Splits a line where the next link begins; with the character that ends the link.
fn next(text: &str) -> Option<(&str, &str, char)> {
    let marks = [("](", ')'), (" src=\"", '"'), (" srcset=\"", '"')];
    let found = marks.iter().filter_map(|(mark, end)| {
        let at = text.find(mark)? + mark.len();
        Some((at, *end))
    });
    let (at, end) = found.min()?;
    Some((&text[..at], &text[at..], end))
}

fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_in_the_book_or_lead_to_the_repository() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let put = |path: &str, text: &str| write(&root.join(path), text.as_bytes()).unwrap();
        put(SUMMARY, "[all](../README.md)\n- [one](one.md)\n");
        put(
            "README.md",
            "[one](docs/one.md#a) <img src=\"docs/a.svg\"> [code](src/lib.rs)\n```\n[x](y)\n```\n",
        );
        put(
            "docs/one.md",
            "[up](../README.md#b), [here](#c), [far](https://x.org/a.md), [two](two.md)\n",
        );
        put("docs/a.svg", "<svg/>");
        put("src/lib.rs", "");
        let into = root.join("book");
        assert_eq!(stage(root, &into).unwrap(), 2);
        let read = |path: &str| fs::read_to_string(into.join(path)).unwrap();
        assert_eq!(
            read("SUMMARY.md"),
            "[all](index.md)\n- [one](docs/one.md)\n"
        );
        assert_eq!(
            read("index.md"),
            format!(
                "[one](docs/one.md#a) <img src=\"docs/a.svg\"> [code]({PUBLISHED}/blob/main/src/lib.rs)\n```\n[x](y)\n```\n"
            )
        );
        assert_eq!(
            read("docs/one.md"),
            format!(
                "[up](../index.md#b), [here](#c), [far](https://x.org/a.md), [two]({PUBLISHED}/blob/main/docs/two.md)\n"
            )
        );
        assert_eq!(read("docs/a.svg"), "<svg/>");
    }
}
