//! Taking the command line and the environment out of this process's memory.

use rustix::io::Errno;

/// Overwrites the strings that `/proc/PID/cmdline` and `/proc/PID/environ` show of this process. Must run only where
/// nothing reads them any more: in a forked child, after every argument was copied.
///
/// # Errors
/// The errno of reading `/proc/self/stat`, or `EINVAL` when it is not as proc_pid_stat(5) says.
pub fn erase_arguments() -> Result<(), Errno> {
    let stat = super::read_proc_record("/proc/self/stat")?;
    // The second field may hold spaces and parentheses: count from behind its last one.
    let close = stat.iter().rposition(|&byte| byte == b')').ok_or(Errno::INVAL)?;
    let tail = std::str::from_utf8(&stat[close + 1..]).map_err(|_| Errno::INVAL)?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    // arg_start, arg_end, env_start, env_end are fields 48 to 51; `fields[0]` is field 3.
    let address = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<usize>().ok()).ok_or(Errno::INVAL);
    for (start, end) in [(address(48)?, address(49)?), (address(50)?, address(51)?)] {
        if start == 0 || end < start {
            return Err(Errno::INVAL);
        }
        // SAFETY: the kernel says that this range of our own stack holds the strings; this is a forked child's copy
        // of it, and nothing reads the strings after this call.
        unsafe { std::ptr::write_bytes(start as *mut u8, 0, end - start) };
    }
    Ok(())
}
