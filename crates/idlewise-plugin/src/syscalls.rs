//! Names of system calls that a governor may try to make.

macro_rules! names {
    ($number:expr; $($name:ident)*; $($old:ident)*) => {
        match $number {
            $($name if $name == libc::$name => Some(stringify!($name)),)*
            $(#[cfg(target_arch = "x86_64")]
            $old if $old == libc::$old => Some(stringify!($old)),)*
            _ => None,
        }
    };
}

/// Returns the name of a system call of this architecture, if it is listed.
pub(crate) fn syscall_name(number: i64) -> Option<&'static str> {
    #[expect(non_snake_case, reason = "the macro binds the constants' names")]
    let name = names!(number;
        SYS_accept SYS_accept4 SYS_bind SYS_bpf SYS_capset SYS_chdir SYS_chroot SYS_clock_nanosleep
        SYS_clone SYS_clone3 SYS_connect SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1
        SYS_epoll_ctl SYS_epoll_pwait SYS_eventfd2 SYS_execve SYS_execveat SYS_faccessat
        SYS_faccessat2 SYS_fallocate SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_fcntl
        SYS_flock SYS_fsync SYS_ftruncate SYS_futex SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid
        SYS_getgid SYS_getpgid SYS_getppid SYS_getrlimit SYS_getrusage SYS_getsockname
        SYS_getsockopt SYS_getuid SYS_inotify_init1 SYS_io_setup SYS_io_uring_setup SYS_ioctl
        SYS_kill SYS_linkat SYS_listen SYS_madvise SYS_memfd_create SYS_mkdirat SYS_mknodat
        SYS_mlock SYS_mlockall SYS_mmap SYS_mount SYS_msgget SYS_nanosleep SYS_newfstatat SYS_openat SYS_openat2
        SYS_perf_event_open SYS_personality SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2
        SYS_ppoll SYS_prctl SYS_preadv SYS_prlimit64 SYS_process_vm_readv SYS_process_vm_writev
        SYS_pselect6 SYS_ptrace SYS_pwrite64 SYS_pwritev SYS_readlinkat SYS_readv SYS_reboot
        SYS_recvfrom SYS_recvmsg SYS_renameat SYS_renameat2 SYS_rt_sigaction SYS_rt_sigqueueinfo
        SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_getaffinity
        SYS_sched_setaffinity SYS_sched_setscheduler SYS_semget SYS_sendfile SYS_sendmsg SYS_sendto
        SYS_setgid SYS_setitimer SYS_setns SYS_setpgid SYS_setpriority SYS_setrlimit SYS_setsid
        SYS_setsockopt SYS_setuid SYS_shmget SYS_shutdown SYS_sigaltstack SYS_signalfd4 SYS_socket
        SYS_socketpair SYS_splice SYS_statfs SYS_statx SYS_symlinkat SYS_sync SYS_tee SYS_tgkill
        SYS_timer_create SYS_timerfd_create SYS_tkill SYS_truncate SYS_umask SYS_umount2 SYS_uname
        SYS_unlinkat SYS_unshare SYS_userfaultfd SYS_utimensat SYS_vmsplice SYS_wait4 SYS_waitid
        SYS_write SYS_writev;
        SYS_access SYS_alarm SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_wait SYS_fork
        SYS_getpgrp SYS_link SYS_mkdir SYS_mknod SYS_open SYS_pause SYS_pipe SYS_poll
        SYS_readlink SYS_rename SYS_rmdir SYS_select SYS_stat SYS_symlink SYS_unlink SYS_vfork
    )?;
    Some(name.trim_start_matches("SYS_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_calls_by_their_numbers_here() {
        assert_eq!(syscall_name(libc::SYS_openat), Some("openat"));
        assert_eq!(syscall_name(libc::SYS_write), Some("write"));
        assert_eq!(syscall_name(-1), None);
    }
}
