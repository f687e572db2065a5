//! The name of this machine.

use membership_core::SiloInfo;

/// The same, with the machine's name where there is none.
pub(crate) fn named(mut info: SiloInfo) -> SiloInfo {
    if info.host_name.is_empty() {
        info.host_name = host_name();
    }
    if info.silo_name.is_empty() {
        info.silo_name.clone_from(&info.host_name);
    }
    info
}

/// From the kernel, `/etc/hostname`, or the environment; `unknown` if none of them has it.
fn host_name() -> String {
    let files = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let from_file = files.iter().find_map(|path| {
        std::fs::read_to_string(path)
            .ok()
            .and_then(|text| clean(&text))
    });
    let from_env = || {
        ["HOSTNAME", "COMPUTERNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok().and_then(|text| clean(&text)))
    };
    from_file
        .or_else(from_env)
        .unwrap_or_else(|| "unknown".to_owned())
}

fn clean(text: &str) -> Option<String> {
    let name = text.trim();
    // 253 is the longest DNS name.
    (!name.is_empty() && name != "(none)").then(|| name.chars().take(253).collect())
}
