//! What a process that grades has started, which ends with it.

use crate::base::files;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

const KILL_WITH_CALLER: &str = "read -r _; sleep 1
for each in $(grep -lF -e \"$2\" /proc/[0-9]*/environ 2>/dev/null); do
each=${each%/environ}; kill -9 \"${each#/proc/}\"; done; kill -9 -\"$1\"";

pub const MARK: &str = "DAPO_WORKER";

pub fn mark() -> String {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}.", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed))
}

pub fn watch(child: &Child, mark: &str) -> Option<Child> {
    let group = child.id().to_string();
    let mut command = Command::new("sh");
    command
        .args(["-c", KILL_WITH_CALLER, "sh", &group, &format!("{MARK}={mark}")])
        .process_group(i32::try_from(child.id()).ok()?);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().ok()
}

/// Ends the process and all that it started.
pub fn kill(child: &mut Child, mark: &str) {
    // What it forked is in its group, or in a session of its own. All of it may have ended.
    let mut apart = started(child, mark);
    let _gone = kill_process_group(Pid::from_child(child), Signal::KILL);
    for _round in 0..3 {
        for process in apart {
            let _gone = kill_process(process, Signal::KILL);
        }
        apart = started(child, mark);
        if apart.is_empty() {
            break;
        }
    }
    let _status = child.wait();
}

/// Processes below it, and those with its mark, also where what started them has ended.
fn started(child: &mut Child, mark: &str) -> Vec<Pid> {
    let own = Pid::from_child(child);
    // The number of one that was waited for may be another's.
    let mut found: Vec<Pid> = Vec::from_iter((!has_ended(child)).then_some(own));
    let mark = format!("{MARK}={mark}");
    let mut parents = Vec::new();
    for name in files::list(Path::new("/proc")).unwrap_or_default() {
        let Some(process) = name.parse().ok().and_then(Pid::from_raw) else { continue };
        let text = |part: &str| {
            files::kernel_text(&Path::new("/proc").join(&name).join(part)).unwrap_or_default()
        };
        if process != own && text("environ").split('\0').any(|entry| entry == mark) {
            found.push(process);
        }
        let status = text("status");
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        let parent = parent.and_then(|number| number.trim().parse().ok());
        parents.extend(parent.and_then(Pid::from_raw).map(|parent| (process, parent)));
    }
    let mut next = 0;
    while let Some(&above) = found.get(next) {
        let is_new = |process: &Pid| !found.contains(process);
        let below = parents.iter().filter(|(it, parent)| *parent == above && is_new(it));
        let below: Vec<Pid> = below.map(|(process, _)| *process).collect();
        found.extend(below);
        next += 1;
    }
    found.retain(|process| *process != own);
    found
}

pub fn has_ended(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}
