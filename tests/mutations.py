#!/usr/bin/env python3
"""Seeds bugs, one at a time, and says which of them the tests notice.

usage: mutations.py [--list] [--only TEXT,...] [--jobs N] [--keep FOLDER]

A mutation is a text of a file, what stands there instead, and the tests that have to notice it: at least one of them must
fail, or must not build. It works on a copy of the last commit, in a folder of its own, that is built once; each mutation
then builds its tests and what they need. A mutation whose text is not there exactly once is an error: whoever changes
the line changes the table. As root more tests can see something, and some mutations are tried as root only.

--only: mutations whose names contain one of the texts. --jobs: for ninja. --keep: the folder, which stays.

Exit status: 0: all were noticed; 1: some were not; 2: the copy does not build, or a mutation is not to be made.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Mutation(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    tests: str  # names as meson has them
    needs_root: bool = False


MUTATIONS = (
    Mutation("a device that failed is not served again", "server/parent.c",
             "if ((parent->ready || parent->needs == PARENT_SOME) && !is_final(code)) {", "if (parent->count == 999 && !is_final(code)) {",
             "server/test_parent system/test_devices"),
    Mutation("processes of a device that failed stay", "server/parent.c",
             "kill(-pid, SIGKILL);", "", "server/test_parent"),
    Mutation("a limit of one device holds for all", "server/config/terms.c",
             "return rule->device == rules->device;", "return rule->device < 99 || rules->device;", "server/config/test_config system/test_devices"),
    Mutation("a fault on one device is an error of the others", "client/state/process.c",
             "return (CUresult)word_relaxed(&((struct session *)session)->error);",
             "return (CUresult)(word_relaxed(&sessions[0].error) | word_relaxed(&sessions[!!session].error));", "system/test_both"),
    Mutation("a stream does not wait for another device", "client/submit/crossing.c",
             "if (r == CUDA_ERROR_NOT_READY)", "if (r == CUDA_ERROR_NOT_READY && !crossing)", "system/test_both"),
    Mutation("a copy between devices does not wait for its stream", "client/stage/ferry.c",
             "if (look_at_begin(ferry) == CUDA_ERROR_NOT_READY)", "if (look_at_begin(ferry) == CUDA_ERROR_NOT_READY && !ferry)",
             "system/test_both"),
    Mutation("a copy from a device that faulted is silent", "client/stage/ferry.c",
             "wait_note_error(session, code);", "(void)code;", "system/test_both"),
    Mutation("a variable has the address of another device's", "client/state/ranges.c",
             "return kind == RANGE_GLOBAL ? &session_self()->globals : &ranges;", "return kind == RANGE_GLOBAL ? &ranges : &ranges;",
             "system/test_both"),
    Mutation("a program is told of a device's memory without its limit", "server/daemon/handshake.c",
             "description->device.total_bytes = terms_lower(terms.memory_limit, guarantee_device_bytes(daemon));", "",
             "server/daemon/test_sessions system/test_devices"),
    Mutation("programs together have more than their device", "server/session/guarantee.c",
             "if (!others.kept && !is_part(session->daemon))", "if (!others.kept)", "server/daemon/test_requests system/test_devices"),
    Mutation("the GPU has what the device has not", "server/session/guarantee.c",
             "if (is_part(session->daemon) && held + leaving(session->daemon) > most)", "if (!most && held + leaving(session->daemon) > most)", "server/daemon/test_requests"),
    Mutation("a service that has failed is ready", "server/daemon/children.c",
             "if (daemon->phase != DAEMON_STARTS || daemon_ends(daemon) || !daemon->device_known", "if (daemon->phase != DAEMON_STARTS || !daemon->device_known",
             "server/fault/test_promote"),
    Mutation("what is left behind waits for a pause for ever", "server/executor/deferred.c",
             "return make_gap_for_old(executor);", "return make_gap_for_old(executor) && !executor;", "server/executor/test_gate"),
    Mutation("devices that a program cannot see are asked", "client/state/device.c",
             "return !list || list[strspn(list, \" \\t\")] == 'G' ||", "return most ||", "client/test_start system/test_devices"),
    Mutation("logical devices are one device", "server/config/devices.c",
             "ret_uuid[COPY_BYTE] ^= (uint8_t)copy;", "(void)copy;", "server/config/test_devices system/test_devices"),
    Mutation("a descriptor's token counts for another user", "server/session/export.c",
             "if (offer->uid == uid && ", "if (uid != 1 && ", "system/test_users", True),
    Mutation("pinned memory is shared with another user", "server/daemon/sharing.c",
             "if (session->uid == uid && ", "if (", "system/test_users", True),
    Mutation("a device lends another user's memory", "server/daemon/lending.c",
             "(uid_t)wish->uid, wish->token", "uid, wish->token", "server/daemon/test_lending"),
    Mutation("a device lends to anybody", "server/daemon/lending.c",
             "if (uid != geteuid())", "if (uid != geteuid() && !daemon)", "server/daemon/test_lending"),
    Mutation("memory that is lent is suspended after a death of the daemon", "server/session/export.c",
             "set_lent(chunk, CHUNK_LENT);", "chunk->lent = CHUNK_LENT;", "server/daemon/test_lending"),
    Mutation("memory that was lent once is lent for good", "server/session/export.c",
             "set_lent(chunk, CHUNK_NOT_LENT);", "(void)chunk;", "server/daemon/test_lending"),
    Mutation("the daemon trusts a file of its own about what an earlier life has lent", "server/session/chunk.c",
             "kept->is_lent ? CHUNK_LENT_FOR_GOOD", "kept->is_lent ? CHUNK_LENT", "server/daemon/test_lending"),
    Mutation("host memory is budgeted to all users together", "server/standby/swap_files.c",
             "if (!owner || session->owner == *owner)", "if (!owner || *owner != (uid_t)-1)", "server/standby/test_swap"),
    Mutation("free memory is bounded by the asker's budget", "server/standby/swap_choose.c",
             "swap_room(asker->daemon, owner)", "swap_room(asker->daemon, asker->owner)", "server/standby/test_swap"),
    Mutation("memory whose sharers have gone counts as shared", "server/session/holdings.c",
             "holdings->shared_count -= chunk->is_shared;", "", "server/standby/test_swap"),
    Mutation("peers do not get what is allocated later", "client/state/peer.c",
             "r = share_openly(&range);", "", "system/test_peers"),
    Mutation("peers keep memory that is freed", "client/state/peer.c",
             "r = end_shares(range);", "", "system/test_peers"),
    Mutation("a copy between peers goes over the host", "client/stage/copy.c",
             "if (r == CUDA_SUCCESS && reaches(stream->session, dst) && reaches(stream->session, src))",
             "if (r == CUDA_SUCCESS && reaches(stream->session, dst) && reaches(stream->session, src) && !to && !from)",
             "system/test_peers"),
    Mutation("another device's memory counts here", "server/session/holdings.c",
             "(!entry->chunk || chunk_is_own(entry->chunk))", "!chunk_is_host(entry->chunk)", "server/daemon/test_lending"),
    Mutation("a copy that is lost before the program goes on is taken for complete", "server/standby/swap_out.c",
             "if (swap->is_stashed && stash_is_lost(stash)) {", "if (swap->is_stashed && stash_is_lost(NULL)) {",
             "server/daemon/test_save"),
    Mutation("the next daemon leaves the copy mapped", "server/standby/stash.c",
             "if (worker->number == daemon->stash_worker)", "if (worker->number == daemon->stash_worker && !daemon)",
             "server/daemon/test_save"),
    Mutation("a copy takes what is guaranteed to others", "server/session/guarantee.c",
             "claimed += held_by(session) + unused_by(session);", "claimed += held_by(session);", "server/daemon/test_save"),
    Mutation("a copy is unmapped while it is made", "server/executor/stash.c",
             "return word_acquire(&stash->filling) || (", "return false && (", "server/executor/test_executor"),
    Mutation("an answer of a former executor counts", "server/daemon/requests.c",
             "return worker != request->session->domain->active;", "return !worker && request;",
             "server/fault/test_halt"),
    Mutation("no limit holds", "server/resource/check.c",
             "return limit && (held > limit || more > limit - held);", "return limit && held > limit && more;",
             "server/resource/test_check"),
    Mutation("the limit of pinned memory forgets what is kept open", "server/resource/check.c",
             "check->holdings->host_bytes + check->kept_bytes", "check->holdings->host_bytes",
             "server/resource/test_check system/test_limits"),
    Mutation("everybody commands every program", "server/control/caller.c",
             "return quota_is_operator(caller->guest.uid) || caller->guest.uid == session->uid;",
             "return quota_is_operator(caller->guest.uid) || session;", "system/test_users", True),
    Mutation("everybody is an operator", "server/daemon/quota.c",
             "return uid == 0 || uid == geteuid();", "return uid == 0 || true;", "system/frmpsctl system/test_users system/mps", True),
    Mutation("a record may be longer than what was written", "shm/ring.c",
             "head.size > ring->seen - ring->head || ", "", "shm/test_ring"),
    Mutation("a ring may hold more than it has room for", "shm/ring.c",
             "published > ring->mask + 1 || ", "", "shm/test_ring"),
    Mutation("an executor stays root", "server/executor/open.c",
             "r = identity_become(user);", "r = 0;", "server/executor/test_executor", True),
    Mutation("first values go anywhere", "server/executor/variable.c",
             "if (block->end < block->start ||", "if (block->end < block->start &&", "server/executor/test_variable"),
    Mutation("a program copies to any address", "server/executor/tenant.c",
             "return range_set_covers(&tenant->device, device, address, bytes);", "return device && bytes;",
             "server/executor/test_intake"),
    Mutation("a damaged record is believed", "server/holder/store.c",
             "slot->check != checksum(slot, type_of(slot)))", "!slot->bytes)", "server/holder/test_store"),
    Mutation("a message leaves before its record", "server/loop/turn_end.c",
             "\t\tturn_end->steps->record(turn_end->context);\n\t\tsend_all(turn_end);",
             "\t\tsend_all(turn_end);\n\t\tturn_end->steps->record(turn_end->context);", "server/loop/test_connection"),
    Mutation("a message is taken off before its answer has left", "server/loop/turn_end.c",
             "\tdo {\n\t\tturn_end->steps->change", "\tdo {\n\t\ttake_off_all(turn_end);\n\t\tturn_end->steps->change",
             "server/loop/test_connection"),
    Mutation("a turn counts before it is committed", "server/holder/store.c",
             "slot->version > store->committed ||", "", "server/holder/test_store"),
    Mutation("an answer is recorded before it is sent", "server/daemon/requests.c",
             "\t\tdue_answer(session, SESSION_ANSWER_REPLY);", "\t\trequest_answered(session);", "system/sweep"),
    Mutation("a file that somebody has open counts as closed", "server/session/handout.c",
             "state = errno == EAGAIN ? STATE_OPEN : STATE_UNKNOWN;", "state = errno == EAGAIN ? STATE_FREE : STATE_UNKNOWN;",
             "server/session/test_handout"),
    Mutation("damaged code on disk is used", "client/state/code_cache.c",
             "!= header.code_sum", "== ~header.code_sum", "system/test_compiling"),
    Mutation("others may have written code on disk", "client/state/code_cache.c",
             "!(status.stx_mode & 022)", "status.stx_mode", "system/test_compiling"),
    Mutation("a table of sections ends anywhere", "server/backend/image.c",
             "!inside(header.e_shoff, count * sizeof(section), bytes))", "!count)", "server/backend/test_backend"),
    Mutation("a member of a fat binary ends anywhere", "server/backend/image.c",
             "!inside(at + entry.header_bytes, entry.payload_bytes, end) ||", "", "server/backend/test_backend"),
    Mutation("two variables in one place move", "server/backend/movable.c",
             "\tkeep_shared(reading);\n", "\t(void)keep_shared;\n", "server/backend/test_relocate"),
    Mutation("an offset into a variable is lost", "server/backend/relocate.c",
             "address_of(move, named) + one->addend", "address_of(move, named)", "server/backend/test_relocate"),
    Mutation("a fault ends an incident that is being handled", "server/incident/incident.c",
             "[INCIDENT_SIGN] = {INCIDENT_HALTING, FIRST_LOSS | INCIDENT_HALT},\n\t\t\t\t[INCIDENT_TERMINATED] = {INCIDENT_FENCING, FIRST_LOSS},\n\t\t\t\t[INCIDENT_REAPED] = {INCIDENT_VACANT, REPLACED},",
             "[INCIDENT_SIGN] = {INCIDENT_HALTING, FIRST_LOSS | INCIDENT_HALT},\n\t\t\t\t[INCIDENT_TERMINATED] = {INCIDENT_FENCING, FIRST_LOSS},\n\t\t\t\t[INCIDENT_REAPED] = {INCIDENT_STARTING, REPLACED},",
             "server/incident/test_incident server/fault/test_promote"),
    Mutation("a kernel that faulted is believed to be done", "client/submit/wait.c",
             "return !word_acquire(&server->doubtful) && word_acquire(&server->state) == SHM_SESSION_RUNNING;",
             "return server;", "system/test_contained system/test_faults system/test_exact"),
    Mutation("a forked child uses its parent's session", "client/state/process.c",
             "return now == ENDED ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;",
             "return now == ENDED ? CUDA_ERROR_DEINITIALIZED : CUDA_SUCCESS;", "system/test_process"),
    Mutation("any user saves programs of others, or restores some", "server/door/visitor.c",
             "(step == HANDOVER_SAVE || step == HANDOVER_RESTORE) && !quota_is_operator(visitor->peer.uid)",
             "step == HANDOVER_NOTHING && !quota_is_operator(visitor->peer.uid)", "server/daemon/test_save"),
    Mutation("a program from files has another program's number", "server/adopt/arrive.c",
             "is_from_files(arrival) ? session_take_number(arrival->daemon) : member->given;", "member->given;",
             "server/adopt/test_arrive"),
    Mutation("what was damaged in files is restored", "server/tools/content.c",
             "if (!r && hash_add(HASH_START, buffer, piece->bytes) != piece->hash)",
             "if (!r && hash_add(HASH_START, buffer, piece->bytes) != piece->hash && !piece)", "server/tools/test_archive"),
    Mutation("a damaged piece of an earlier checkpoint is shared", "server/tools/earlier.c",
             "if (got <= 0 || memcmp(step, bytes + at, (size_t)got) != 0)", "(void)bytes;\n\t\tif (got <= 0)",
             "server/tools/test_earlier"),
    Mutation("a file that another one can write is shared", "server/tools/earlier.c",
             "status.st_uid == geteuid() && !(status.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH))", "true",
             "server/tools/test_earlier"),
    Mutation("a longer file is shared", "server/tools/earlier.c",
             "(uint64_t)status.st_size == bytes", "(uint64_t)status.st_size >= bytes", "server/tools/test_earlier"),
    Mutation("a restored program has what the tool has open", "server/tools/criu.c",
             "close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);", "", "server/tools/test_criu"),
    Mutation("memory without a mapping comes back", "server/standby/swap_back.c",
             "if (!piece_mapping(&swap->pieces.at[i]))", "if (!swap && !piece_mapping(&swap->pieces.at[i]))",
             "server/standby/test_lost"),
)


def run(command, folder, **more):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def copy_to(folder):
    archive = subprocess.Popen(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, check=True)
    if archive.wait():
        sys.exit("no copy can be made")


def change(path, mutation):
    text = path.read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"its text is {text.count(mutation.old)} times in {mutation.file}")
    path.write_text(text.replace(mutation.old, mutation.new))
    return text


def is_noticed(folder, mutation, jobs):
    """Return: who noticed it; None: nobody"""
    built = run(["ninja", "-C", "build", "-j", str(jobs)], folder)
    if built.returncode:
        return "the compiler"
    for test in mutation.tests.split():
        found = run(["meson", "test", "-C", "build", "--no-rebuild", test], folder)
        if found.returncode:
            return test
    return None


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    chosen = [one for one in MUTATIONS if any(text in one.name for text in arguments.only.split(","))]
    if arguments.list:
        for one in chosen:
            print(f"{one.name}: {one.file}; {one.tests}")
        return 0
    folder = pathlib.Path(arguments.keep or tempfile.mkdtemp(prefix="frmps-mutations-"))
    folder.mkdir(exist_ok=True)
    try:
        return try_all(folder, chosen, arguments.jobs)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)


def try_all(folder, chosen, jobs):
    print("building a copy of the last commit", flush=True)
    copy_to(folder)
    for command in (["meson", "setup", "build"], ["ninja", "-C", "build", "-j", str(jobs)]):
        built = run(command, folder)
        if built.returncode:
            print(built.stdout[-4000:])
            return 2
    known = {line.split(" / ")[-1] for line in run(["meson", "test", "-C", "build", "--list"], folder).stdout.splitlines()}
    missed = wrong = 0
    for number, mutation in enumerate(chosen, 1):
        label = f"{number}/{len(chosen)} {mutation.name}"
        if mutation.needs_root and os.geteuid():
            print(f"{label}: skipped, for root only", flush=True)
            continue
        path, begin = folder / mutation.file, time.monotonic()
        try:
            if not known.issuperset(mutation.tests.split()):
                raise ValueError(f"there is no test {set(mutation.tests.split()) - known}")
            text = change(path, mutation)
        except (OSError, ValueError) as problem:
            print(f"{label}: CANNOT BE MADE, {problem}", flush=True)
            wrong += 1
            continue
        by = is_noticed(folder, mutation, jobs)
        path.write_text(text)
        missed += not by
        print(f"{label}: {'noticed by ' + by if by else 'NOT NOTICED'} ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{len(chosen)} mutations, {missed} not noticed, {wrong} cannot be made")
    return 2 if wrong else 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
