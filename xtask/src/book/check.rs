//! Every link within the built site leads to a page, and to a place on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;

/// What a page has and wants.
struct Page {
    ids: BTreeSet<String>,
    links: Vec<String>,
}

/// The links that lead nowhere, each with the page that has it.
pub(super) fn dead_links(site: &Path) -> Result<Vec<String>, Failure> {
    let site = site.canonicalize()?;
    let mut pages = BTreeMap::new();
    collect(&site, &mut pages)?;
    let mut dead = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.with_file_name("").join(file),
            };
            // A folder that does not exist cannot be left, either.
            let leads = target.canonicalize().is_ok_and(|target| {
                let there = pages.get(&target);
                anchor.is_empty() || there.is_none_or(|page| page.ids.contains(anchor))
            });
            if !leads {
                let page = path.strip_prefix(&site).unwrap_or(path);
                dead.push(format!("{} links to {link}", page.display()));
            }
        }
    }
    if pages.len() < 2 {
        return Err(Failure::new("the site has no pages"));
    }
    Ok(dead)
}

fn collect(folder: &Path, pages: &mut BTreeMap<PathBuf, Page>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|e| e == "html")
            // Its links begin where the site is published.
            && path.file_name().is_some_and(|name| name != "404.html")
        {
            let text = fs::read_to_string(&path)?;
            let of = |name: &str| values(&text, name);
            let links = of("href").into_iter().chain(of("src"));
            let is_inside = |link: &String| !link.contains("://") && !link.contains(':');
            let page = Page {
                ids: of("id").into_iter().collect(),
                links: links.filter(is_inside).collect(),
            };
            pages.insert(path, page);
        }
    }
    Ok(())
}

/// The values of an attribute.
fn values(text: &str, name: &str) -> Vec<String> {
    let mark = format!(" {name}=\"");
    let parts = text.split(&mark).skip(1);
    let value = |part: &str| part.split('"').next().map(|v| v.replace("&amp;", "&"));
    parts.filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_link_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put("a.html", "<a href=\"b.html#x\"></a><h1 id=\"top\">");
        put(
            "b.html",
            "<h1 id=\"x\"><a href=\"#x\"></a><a href=\"https://c.org\"></a>",
        );
        assert_eq!(dead_links(folder.path()).unwrap(), Vec::<String>::new());
        put("b.html", "<h1 id=\"y\"><a href=\"gone.html\"></a>");
        assert_eq!(
            dead_links(folder.path()).unwrap(),
            ["a.html links to b.html#x", "b.html links to gone.html"]
        );
    }
}
