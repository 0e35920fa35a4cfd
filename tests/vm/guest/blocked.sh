# Hosts that block user namespaces: by the kernel's own switches, and by AppArmor.
cd /vmtest && . guest/check.sh

blocked() { # NAME CODE RUNNER...
    local who=$1 code=$2; shift 2
    status 125 "$who: nothing runs" "$@" anet run -- true
    holds "$who: $code" "^anet: $code: "
    if [ "$(wc -l <<<"$out")" = 1 ]; then good "$who: in one line"; else bad "$who: several lines"; fi
    status 1 "$who: the doctor says so" "$@" anet doctor --json
    holds "$who: the doctor: $code" "\"available\":false,.*\"code\":\"$code\""
}

for switch in kernel.unprivileged_userns_clone user.max_user_namespaces; do
    usual=$(sysctl -n $switch)
    sysctl -q $switch=0
    blocked "$switch=0, user" userns_unavailable as_user
    blocked "$switch=0, root" userns_unavailable env
    sysctl -q $switch="$usual"
done
check 'and again' as_user anet run -- true

if ! grep -rqs userns_create /sys/kernel/security/apparmor/features/namespaces; then
    echo 'skip  AppArmor of this kernel does not mediate user namespaces'
    finish
    exit
fi

# A session whose profile lets it do everything but make user namespaces.
cp /bin/dash /usr/local/bin/session
cat >/etc/apparmor.d/test-session <<'PROFILE'
abi <abi/4.0>,
include <tunables/global>
profile test-session /usr/local/bin/session flags=(attach_disconnected) {
  allow capability,
  allow file rwlkm /{**,},
  allow network,
  allow unix,
  allow ptrace,
  allow signal,
  allow mqueue,
  allow io_uring,
  allow mount,
  allow umount,
  allow pivot_root,
  allow dbus,
  allow change_profile,
  allow pix /**,
}
PROFILE
apparmor_parser -r /etc/apparmor.d/test-session
in_session() { as_user /usr/local/bin/session -c '"$@"; exit $?' session "$@"; }

blocked 'AppArmor' userns_blocked in_session
status 125 'AppArmor: the sentence' in_session anet run -- true
holds 'PLT-2: it says what to install' 'anet doctor --apparmor-profile \| sudo tee /etc/apparmor.d/anet-bwrap >/dev/null && sudo apparmor_parser -r /etc/apparmor.d/anet-bwrap'
holds 'PLT-3: it names the profile around the session' 'the AppArmor profile test-session around this session'

check 'PLT-2: that is done as it says' sh -c \
    'anet doctor --apparmor-profile | tee /etc/apparmor.d/anet-bwrap >/dev/null && apparmor_parser -r /etc/apparmor.d/anet-bwrap'
for who in as_user env; do
    check "$who: a sandbox works" $who anet run -- sh -c 'cat /proc/self/attr/current; grep ^Cap /proc/self/status'
    holds "$who: PLT-3: under both parts" '^anet-bwrap//&anet-bwrap-unpriv \(enforce\)$'
    lacks "$who: SBX-3: no capability" '^Cap.*[1-9a-f]$'
    check "$who: limits too" $who anet run --untrusted -- true
    check "$who: the doctor is content" $who anet doctor
    holds "$who: PLT-3: it found the profile" '/etc/apparmor.d/anet-bwrap has a profile for bubblewrap, and it suffices'
    lacks "$who: PLT-3: and proposes no second" 'apparmor_parser'
done
# no_new_privs keeps everybody in the session's profile, so a profile for bubblewrap does not help there: that is said.
blocked 'AppArmor, with the profile' userns_blocked in_session
status 1 'AppArmor, with the profile: the doctor' in_session anet doctor
holds 'PLT-3: the doctor names the profile around the session' 'confined by the profile test-session'
lacks 'PLT-3: and proposes no second for bubblewrap' 'sudo tee'

# Ubuntu's package ships a profile of its own.
apparmor_parser -R /etc/apparmor.d/anet-bwrap
sed 's/anet-bwrap-unpriv/unpriv_bwrap/g; s/anet-bwrap/bwrap/g' /etc/apparmor.d/anet-bwrap >/etc/apparmor.d/bwrap-userns-restrict
rm /etc/apparmor.d/anet-bwrap
apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict
check "the distribution's profile: a sandbox works" as_user anet run -- cat /proc/self/attr/current
holds "the distribution's profile: under both parts" '^bwrap//&unpriv_bwrap \(enforce\)$'
check "the distribution's profile: the doctor is content" as_user anet doctor
holds "PLT-3: the distribution's profile is found" '/etc/apparmor.d/bwrap-userns-restrict has a profile'
lacks 'PLT-3: and no second proposed' 'apparmor_parser'
finish
