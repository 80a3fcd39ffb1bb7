//! The look back: what the kernel says of this process, against what the plan wanted.

use super::StepError;
use crate::plan::Seal;

/// Reads /proc/self/status and refuses on any difference. The last act before exec.
pub(super) fn read_back(plan: &Seal) -> Result<(), StepError> {
    let step = "read /proc/self/status back";
    let status = crate::sys::read_proc_record("/proc/self/status").map_err(|err| StepError::new(step, err))?;
    check(&String::from_utf8_lossy(&status), plan.seccomp, plan.on_the_host)
        .map_err(|cause| StepError::new(step, cause))
}

/// `keeps_bounding`: the bounding set may be what it was, for it could not be dropped; with every other set empty and
/// no_new_privs it bounds nothing.
fn check(status: &str, seccomp: bool, keeps_bounding: bool) -> Result<(), String> {
    let zero = |name: &'static str| (name, "0000000000000000");
    let mut wanted = vec![zero("CapInh"), zero("CapPrm"), zero("CapEff"), zero("CapAmb"), ("NoNewPrivs", "1")];
    if !keeps_bounding {
        wanted.push(zero("CapBnd"));
    }
    if seccomp {
        wanted.push(("Seccomp", "2"));
    }
    for (name, value) in wanted {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        match line.map(str::trim) {
            Some(found) if found == value => {}
            Some(found) => return Err(format!("{name} is {found}, not {value}")),
            None => return Err(format!("{name} is missing")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    const GOOD: &str = "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
                        CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";

    #[test]
    fn any_difference_is_refused() {
        assert_eq!(check(GOOD, true, false), Ok(()));
        let bounding = GOOD.replace("CapBnd:\t0000000000000000", "CapBnd:\t0000000000000001");
        assert_eq!(check(&bounding, true, false), Err("CapBnd is 0000000000000001, not 0000000000000000".into()));
        assert_eq!(check(&bounding, true, true), Ok(()));
        let permitted = bounding.replace("CapPrm:\t0000000000000000", "CapPrm:\t0000000000000001");
        assert!(check(&permitted, true, true).is_err());
        assert_eq!(check(&GOOD.replace("NoNewPrivs:\t1\n", ""), true, false), Err("NoNewPrivs is missing".into()));
        assert!(check(&GOOD.replace("Seccomp:\t2", "Seccomp:\t0"), true, false).is_err());
        assert!(check(&GOOD.replace("Seccomp:\t2", "Seccomp:\t0"), false, false).is_ok());
    }
}
