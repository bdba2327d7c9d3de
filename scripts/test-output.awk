# Extracts from a test program's output (with --show-output) what failed, and which tests passed only because
# they could not run. See scripts/cargo-test.
/^(failures|test result):?/ { is_passed = 0 }
/^test .* \.\.\. ignored/ {
    if ($0 !~ /ignored, writes/) { sub(/^test /, "SKIPPED: "); sub(/ \.\.\. /, ": "); print }
    next
}
/^test .* \.\.\. ok$/ { next }
/^successes:$/ { is_passed = 1; next }
is_passed && /^---- .* stdout ----$/ { name = $2; for (i = 3; i < NF - 1; i++) name = name " " $i; next }
is_passed && /SKIPPED: / {
    sub(/.*SKIPPED: /, "")
    # Some lines already contain the test's name.
    function_name = name
    sub(/.*::/, "", function_name)
    if (index($0, function_name ": ") == 1) $0 = substr($0, length(function_name) + 3)
    print "SKIPPED: " name ": " $0
    next
}
!is_passed { print; fflush() }
