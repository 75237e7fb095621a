// See admit.h.

#include "server/adopt/admit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/bytes.h"
#include "server/config/config.h"
#include "server/daemon/handover.h"
#include "server/daemon/quota.h"
#include "server/log.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/guarantee.h"
#include "server/session/holdings.h"
#include "server/session/owner.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/standby/swap.h"

void admit_read_head(const struct handover_member *member, struct session *ret_session)
{
	memset(ret_session, 0, sizeof(*ret_session));
	memcpy(ret_session, member->session.head, sizeof(member->session.head));
	ret_session->subject.executable[SUBJECT_PATH_MAX - 1] = '\0';
	ret_session->subject.cgroup[SUBJECT_PATH_MAX - 1] = '\0';
	ret_session->identity[SESSION_IDENTITY_MAX - 1] = '\0';
}

static uint64_t window_of(const struct handover_member *member)
{
	uint64_t address;

	memcpy(&address, member->session.head + offsetof(struct session, window), sizeof(address));
	return address;
}

/* A window of one of the sessions, in the domain to come to. */
struct claim {
	const struct window_set *set;
	uint64_t address, bytes;
};

/* @claims: room for as many as there are members and records. Return: how many there are */
static size_t list_windows(
	const struct handover *handover, const struct arriving *members, struct claim *claims)
{
	size_t count = 0;

	for (uint32_t i = 0; i < handover->head.member_count; i++)
		claims[count++] = (struct claim){
			&members[i].domain->windows, window_of(&handover->members[i]), WINDOW_BYTES};
	for (uint64_t i = 0; i < handover->head.record_count; i++) {
		const struct kept_holding *kept = handover->records[i].kept;

		if (kept->type == WIRE_RESERVE_WINDOW)
			claims[count++] = (struct claim){
				&members[handover_find_member(handover, kept->session)].domain->windows,
				kept->address, kept->bytes};
	}
	return count;
}

static int compare_claims(const void *left, const void *right)
{
	const struct claim *a = left, *b = right;

	if (a->set != b->set)
		return (uintptr_t)a->set < (uintptr_t)b->set ? -1 : 1;
	return (a->address > b->address) - (a->address < b->address);
}

static bool is_window_free(const struct claim *claim)
{
	return !window_users(claim->set, claim->address) &&
	       window_is_possible(claim->set, claim->address, claim->bytes);
}

/* Of programs there, and of each other: those that share may come from executors of their own, and
 * find one executor for all. */
static bool are_windows_free(const struct handover *handover, const struct arriving *members)
{
	struct claim *claims =
		calloc(handover->head.member_count + handover->head.record_count, sizeof(*claims));
	bool are_free = true;
	size_t count;

	log_bug_on(!claims);
	count = list_windows(handover, members, claims);
	qsort(claims, count, sizeof(*claims), compare_claims);
	for (size_t i = 0; are_free && i < count; i++) {
		const struct claim *claim = &claims[i], *before = i ? claim - 1 : NULL;

		if (claim->address == WINDOW_NONE)
			continue;
		are_free = is_window_free(claim) &&
			   !(before && before->set == claim->set && before->address != WINDOW_NONE &&
				   before->address + before->bytes > claim->address);
	}
	free(claims);
	return are_free;
}

/* Device memory of all programs here. */
static uint64_t bytes_in_use(const struct daemon *daemon)
{
	const struct session *session;
	uint64_t bytes = 0;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		bytes += session->holdings.owned_bytes;
	return bytes;
}

/* Device memory of the set. UINT64_MAX: too large to compute */
static uint64_t bytes_to_come(const struct handover *handover)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < handover->head.member_count; i++)
		if (__builtin_add_overflow(bytes, handover->members[i].owned_bytes, &bytes))
			return UINT64_MAX;
	return bytes;
}

static void find_terms(const struct daemon *daemon, const struct session *head, struct terms *ret_terms)
{
	terms_find(&daemon->rules, &head->subject, ret_terms);
	terms_tighten(ret_terms, head->memory_wish, head->sm_wish, head->class_wish);
}

/* Room of this device. @head: of the first. @text: ADMIT_TEXT. Return: NULL, or why the memory of
 * the set has none */
static const char *refuses_bytes(
	const struct daemon *daemon, const struct handover *handover, const struct session *head, char *text)
{
	const uint64_t bytes = bytes_to_come(handover), all = guarantee_device_bytes(daemon);
	struct terms terms;
	const char *why;
	uint64_t used;

	find_terms(daemon, head, &terms);
	/* Others make room for such a program. */
	used = terms.memory_policy == CONFIG_MEMORY_POLICY_SWAP ? 0 : bytes_in_use(daemon);
	if (bytes > all || used > all - bytes)
		snprintf(text, ADMIT_TEXT, "its device memory, %s, does not fit there beside that of others",
			BYTES_OF(bytes));
	else if ((why = swap_refuses_bytes(daemon, owner_of(head->uid), bytes)))
		snprintf(text, ADMIT_TEXT, "there, on the way, %s", why);
	else
		return NULL;
	return text;
}

/* Limits of this device. @text: ADMIT_TEXT. Return: NULL, or the limit that forbids the session */
static const char *limit(const struct daemon *daemon, const struct session *head, uint64_t bytes, char *text)
{
	struct terms terms;

	find_terms(daemon, head, &terms);
	if (!terms.memory_limit || bytes <= terms.memory_limit)
		return terms_miss(&daemon->rules, &head->subject);
	snprintf(text, ADMIT_TEXT, "it has more device memory, %s, than it may have there (memory_limit)",
		BYTES_OF(bytes));
	return text;
}

/* @alone: why the program needs an executor of its own; NULL: no reason yet. Return: NULL, or why
 * there can be no domain */
static const char *make_domain(struct daemon *daemon, struct arriving *member,
	const struct identity *identity, const struct session *head, const char *alone, int32_t *ret_code)
{
	struct domain_refusal refusal;

	member->domain = domain_for(daemon, identity, &head->subject, head->identity, alone, &refusal);
	member->domain_number = member->domain ? member->domain->number : 0;
	if (member->domain)
		return NULL;
	*ret_code = refusal.code;
	return refusal.text;
}

/* Finds the member's domain. Return: NULL, or why the program can have no session here */
static const char *find_domain(struct daemon *daemon, struct arriving *member, uint64_t beside,
	const struct identity *identity, const struct session *head, int32_t *ret_code)
{
	const struct session_peer peer = {
		.uid = head->uid, .owner = owner_of(head->uid), .pid = head->pid, .subject = head->subject};
	const char *text = quota_refuses_session(daemon, &peer, beside, ret_code);

	if (text)
		return text;
	member->domain = daemon_find_domain(daemon, member->domain_number);
	if (member->domain && member->domain->life == DOMAIN_OPEN &&
		member->domain->identity.uid == head->uid)
		return NULL;
	return make_domain(daemon, member, identity, head, NULL, ret_code);
}

/* Gives all members executors of their own: in shared executors, other programs have the addresses.
 * Return: NULL, or why not */
static const char *part_from_others(
	struct daemon *daemon, const struct handover *handover, struct arriving *members, int32_t *ret_code)
{
	static struct session head; /* the head alone, of one session at a time */
	const char *why = NULL;

	for (uint32_t i = 0; !why && i < handover->head.member_count; i++) {
		admit_read_head(&handover->members[i], &head);
		why = make_domain(daemon, &members[i], &handover->members[i].identity, &head,
			"its addresses are another program's", ret_code);
	}
	return why;
}

/* @text: ADMIT_TEXT. Return: NULL, or why the session cannot come */
static const char *refuses_session(
	struct daemon *daemon, const struct handover_member *member, const struct session *head, char *text)
{
	if (*member->partition && !partition_find(daemon, member->partition))
		return "the other device has no SM partition of the name that the program's has";
	return limit(daemon, head, member->memory_bytes, text);
}

/* Return: NULL, or why nobody can come */
static const char *refuses_all(const struct daemon *daemon, const struct handover *handover)
{
	if (!daemon->device_known || daemon->phase >= DAEMON_STOPS || daemon_has_failed(daemon) ||
		!daemon_offers_device(daemon))
		return "the other device is not served now: it starts, is drained, or has failed";
	if (handover->head.capability != daemon_capability(daemon))
		return "the other device has another compute capability: the program's code may not run "
		       "there";
	return NULL;
}

const char *admit_refuses(struct daemon *daemon, const struct handover *handover, struct arriving *members,
	bool may_be_alone, int32_t *ret_code, char *text)
{
	static struct session head; /* the head alone, of one session at a time */
	const char *why = refuses_all(daemon, handover);

	*ret_code = CUDA_ERROR_NOT_SUPPORTED;
	for (uint32_t i = 0; !why && i < handover->head.member_count; i++) {
		const struct handover_member *member = &handover->members[i];

		admit_read_head(member, &head);
		if (!i)
			why = refuses_bytes(daemon, handover, &head, text);
		why = why ? why : refuses_session(daemon, member, &head, text);
		/* Those before this one come, too. */
		if (!why)
			why = find_domain(daemon, &members[i], i, &member->identity, &head, ret_code);
		if (why && i)
			why = swap_name_obstacle(member->number, head.pid, why);
	}
	if (why || are_windows_free(handover, members))
		return why;
	if (may_be_alone)
		why = part_from_others(daemon, handover, members, ret_code);
	if (why || (may_be_alone && are_windows_free(handover, members)))
		return why;
	return "its addresses are another program's on the other device, or taken there for its own pinned "
	       "memory";
}
