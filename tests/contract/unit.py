#!/usr/bin/env python3
"""The units of the service: what they may. Each right that is kept has its reason beside it, and systemd's own score of exposure
stays small where systemd-analyze is there to give it.

    unit.py FILE...    frmps-server.service and frmps-server@.service, as they are installed
"""

import re
import shutil
import subprocess
import sys

SCORE_MAX = 4.0
# Rights that nothing here needs, and that would be missed by nobody else either.
NEVER = {'SYS_MODULE', 'SYS_BOOT', 'SYS_TIME', 'SYS_RAWIO', 'NET_ADMIN', 'NET_RAW', 'MKNOD', 'SYS_CHROOT', 'MAC_ADMIN', 'AUDIT_CONTROL'}
WANTED = {'NoNewPrivileges': 'yes', 'ProtectSystem': 'strict', 'ProtectHome': 'yes', 'PrivateTmp': 'yes', 'PrivateNetwork': 'yes',
          'RestrictAddressFamilies': 'AF_UNIX', 'RestrictNamespaces': 'yes', 'ProtectKernelModules': 'yes', 'ProtectKernelTunables': 'yes',
          'ProtectControlGroups': 'yes', 'RestrictSUIDSGID': 'yes', 'RestrictRealtime': 'yes', 'SystemCallArchitectures': 'native',
          'SystemCallFilter': '@system-service fsopen fsconfig fsmount', 'SystemCallErrorNumber': 'EPERM'}
# What is left out, each with a reason.
LEFT_OUT = ('ProtectKernelLogs', 'ProtectProc', 'ProcSubset', 'PrivateDevices', 'DeviceAllow', 'ProtectClock', 'LockPersonality',
            'MemoryDenyWriteExecute', 'PrivateUsers')


def faults_of(text):
    """What is wrong with a unit."""
    settings = dict(line.split('=', 1) for line in text.splitlines() if re.match(r'\w+=', line))
    comments = '\n'.join(line for line in text.splitlines() if line.startswith('#'))
    kept = {name.removeprefix('CAP_') for name in settings.get('CapabilityBoundingSet', 'everything').split()}
    found = [f'{key}={settings.get(key, "")} and not {value}' for key, value in WANTED.items() if settings.get(key) != value]
    found += [f'{name} is kept' for name in sorted(kept & NEVER)]
    found += [f'{name} is kept, and no comment says why' for name in sorted(kept) if not re.search(rf'\b{name}\b', comments)]
    found += [f'{name} is left out, and no comment says why' for name in LEFT_OUT if name not in settings and name not in comments]
    return found


def score_of(path):
    """systemd's own; None where it does not say."""
    if not shutil.which('systemd-analyze'):
        return None
    done = subprocess.run(['systemd-analyze', 'security', '--offline=true', '--no-pager', path], capture_output=True, text=True, check=False)
    match = re.search(r'Overall exposure level for .*: ([0-9.]+)', done.stdout)
    return float(match[1]) if match else None


def main():
    with open(sys.argv[1], encoding='utf-8') as file:
        text = file.read()
    # It notices what it is for.
    planted = faults_of(text.replace('ProtectHome=yes\n', '').replace('CAP_KILL', 'CAP_KILL CAP_SYS_TIME CAP_LEASE'))
    if len(planted) != len(faults_of(text)) + 4:
        sys.exit(f'unit.py: planted offences are not noticed: {planted}')
    failed = False
    for path in sys.argv[1:]:
        with open(path, encoding='utf-8') as file:
            found = faults_of(file.read())
        score = score_of(path)
        print(f'{path}: exposure {score if score is not None else "unknown: there is no systemd-analyze that says it"}')
        if score is not None and score > SCORE_MAX:
            found.append(f'its exposure is {score}, more than {SCORE_MAX}')
        for one in found:
            print(f'unit.py: {path}: {one}', file=sys.stderr)
            failed = True
    sys.exit(failed)


if __name__ == '__main__':
    main()
