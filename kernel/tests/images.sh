# shellcheck shell=bash
# Unpacks images of Debian's own kernels into $build, without installing them. Sourced by scripts that boot them.

# Debian's own kernels that apt knows, including backports: the newest of each series.
stock_kernels() {
    apt-cache show linux-image-amd64 linux-image-6.12-amd64 2>/dev/null |
        sed -n 's/^Depends:.*linux-image-\([0-9][^ ,]*\).*/\1/p' | sort -V |
        awk -F . '{ newest[$1 "." $2] = $0 } END { for (series in newest) print newest[series] }' | sort -V
}

# of_image KERNEL vmlinuz|config: newer packages have these files beside the modules, not in /boot.
of_image() {
    local image=$build/image-$1 file
    for file in "$image/boot/$2-$1" "$image/usr/lib/modules/$1/$2"; do
        [ ! -e "$file" ] || { echo "$file"; return; }
    done
    return 1
}

unpack_image() {
    local kernel=$1 packages=(linux-image)
    ! of_image "$kernel" vmlinuz > /dev/null || return 0
    # Newer kernels are split into four packages.
    ! apt-cache show "linux-binary-$kernel" > /dev/null 2>&1 || packages=(linux-binary linux-modules linux-base)
    # As root, apt would warn that its sandbox user may not write there.
    (cd "$build" && apt-get download --quiet=2 -o APT::Sandbox::User=root "${packages[@]/%/-$kernel}" &&
        for package in "${packages[@]/%/-$kernel}"; do dpkg --extract "$package"_*.deb "image-$kernel"; done &&
        rm ./linux-*-"$kernel"_*.deb)
}
