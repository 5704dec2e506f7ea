//! Real boxes on this machine. They need root; each test has a directory and an id range of its own, and ends by checking
//! that nothing of its box is left.

mod common;

use common::Box;
use sandbox::ExitStatus;

#[test]
fn a_shell_runs_as_root_inside() {
    let mut a_box = Box::host("shell");
    let (out, status) = a_box.sh("id; echo hi; hostname; cat /proc/self/uid_map");
    assert_eq!(status, ExitStatus::Code(0), "{out}");
    assert!(out.starts_with("uid=0(root) gid=0(root) groups=0(root)\nhi\nshell\n"), "{out}");
    assert!(out.contains(&a_box.spec.id_range().first.to_string()), "{out}");
    a_box.end();
}
