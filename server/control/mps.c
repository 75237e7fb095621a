// Verbs of stock MPS. See mps.h.

#include "server/control/mps.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "protocol/percentage.h"
#include "protocol/uuid.h"
#include "server/backend/backend.h"
#include "server/config/config.h"
#include "server/control/caller.h"
#include "server/daemon/life.h"
#include "server/identity.h"
#include "server/log.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/partition.h"
#include "server/daemon/quota.h"
#include "server/session/session.h"
#include "server/session/userlog.h"
#include "server/worker/worker.h"
#include "shm/layout.h"

/* Longest time that programs may be given to end, seconds: as stop_seconds. */
#define STOP_SECONDS_MAX 86400

/* A verb under way. */
struct verb {
	struct daemon *daemon;
	uid_t uid; /* the operator's user */
	const char *name;
	unsigned count;
	const char *words[OPERATOR_ARGUMENTS_MAX];
	struct mps_answer *answer;
};

static void refuse(const struct verb *verb, CUresult code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Every reason names the verb: scripts send many. */
static void refuse(const struct verb *verb, CUresult code, const char *format, ...)
{
	struct mps_answer *answer = verb->answer;
	va_list arguments;
	int used = snprintf(answer->text, sizeof(answer->text), "%s: ", verb->name);

	answer->code = (int32_t)code;
	va_start(arguments, format);
	vsnprintf(answer->text + used, sizeof(answer->text) - (size_t)used, format, arguments);
	va_end(arguments);
}

/* Return: true for the service's operator; otherwise the answer is a refusal */
static bool is_operator(const struct verb *verb)
{
	if (quota_is_operator(verb->uid))
		return true;
	refuse(verb, CUDA_ERROR_NOT_PERMITTED, "only root and the service's own user may do it");
	return false;
}

static void note(const struct verb *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Logs a change by an operator. */
static void note(const struct verb *verb, const char *format, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	userlog_event(verb->daemon, verb->uid, USERLOG_operator, LOG_LEVEL_INFO,
		"%s: an operator of uid %lld: %s", verb->name, (long long)verb->uid, text);
}

/*
 * Meaning of words
 */

static bool parse_number(const char *text, uint64_t most, uint64_t *ret_number)
{
	return config_parse_number(text, false, ret_number) && *ret_number <= most;
}

bool mps_parse_value(const char *text, uint64_t *ret_bytes)
{
	size_t length = strlen(text);

	return length && strchr("KkMmGg", text[length - 1]) && config_parse_number(text, true, ret_bytes);
}

static void answer_number(const struct verb *verb, uint64_t number)
{
	verb->answer->is_number = true;
	verb->answer->number = number;
}

/* In the format that scripts expect: whole gigabytes as such. */
static void print_value(const struct verb *verb, uint64_t bytes)
{
	struct mps_answer *answer = verb->answer;
	const uint64_t mib = bytes >> 20;

	answer_number(verb, bytes);
	if (!bytes)
		*answer->text = '\0';
	else if (!mib)
		snprintf(answer->text, sizeof(answer->text), "%" PRIu64 "K", bytes >> 10);
	else if (mib % 1024 == 0)
		snprintf(answer->text, sizeof(answer->text), "%" PRIu64 "G", mib / 1024);
	else
		snprintf(answer->text, sizeof(answer->text), "%" PRIu64 "M", mib);
}

static bool is_device(const struct verb *verb, const char *word)
{
	const unsigned number = verb->daemon->heritage->number;
	char uuid[UUID_TEXT];

	if (daemon_is_named(verb->daemon, word))
		return true;
	daemon_uuid(verb->daemon, uuid);
	if (daemon_devices(verb->daemon) == 1)
		refuse(verb, CUDA_ERROR_INVALID_DEVICE, "there is no device %s: the service has one, 0",
			word);
	else
		refuse(verb, CUDA_ERROR_INVALID_DEVICE, "device %s is not this one: that is %u, %s", word,
			number, uuid);
	return false;
}

/* The domain of a server, if the operator may command that server. Return: NULL after a refusal */
static struct domain *find_server(const struct verb *verb, const char *word)
{
	struct domain *domain;
	uint64_t pid;

	if (parse_number(word, INT32_MAX, &pid)) {
		TAILQ_FOREACH (domain, &verb->daemon->domains, link) {
			if (domain->use == DOMAIN_NOBODYS || !domain->active ||
				(uint64_t)domain->active->pid != pid)
				continue;
			if (quota_is_operator(verb->uid) || domain->identity.uid == verb->uid)
				return domain;
			refuse(verb, CUDA_ERROR_NOT_PERMITTED, "server %s is another user's", word);
			return NULL;
		}
	}
	refuse(verb, CUDA_ERROR_NOT_FOUND, "there is no server %s (get_server_list lists them)", word);
	return NULL;
}

/*
 * Limits
 */

/* Of a program that no section for users, groups or programs names. */
static struct terms default_terms(const struct daemon *daemon)
{
	struct terms terms;

	terms_of_device(&daemon->rules, &terms);
	return terms;
}

static uint64_t default_limit(const struct daemon *daemon)
{
	return terms_lower(daemon->memory_default, default_terms(daemon).memory_limit);
}

static void get_default_device_pinned_mem_limit(const struct verb *verb)
{
	if (!verb->count || is_device(verb, verb->words[0]))
		print_value(verb, default_limit(verb->daemon));
}

static bool parse_limit(const struct verb *verb, const char *word, uint64_t *ret_bytes)
{
	if (mps_parse_value(word, ret_bytes))
		return true;
	refuse(verb, CUDA_ERROR_INVALID_VALUE, "%s is no number with K, M or G, as in 10G", word);
	return false;
}

static void set_default_device_pinned_mem_limit(const struct verb *verb)
{
	uint64_t bytes;

	if (!is_operator(verb) || !is_device(verb, verb->words[0]) ||
		!parse_limit(verb, verb->words[1], &bytes))
		return;
	verb->daemon->memory_default = bytes;
	note(verb, "programs that start from now on have at most %s of device memory", verb->words[1]);
}

static void get_device_pinned_mem_limit(const struct verb *verb)
{
	const struct domain *domain = find_server(verb, verb->words[0]);

	if (domain && is_device(verb, verb->words[1]))
		print_value(verb, terms_lower(domain->memory_limit, default_limit(verb->daemon)));
}

/* A user may not remove the limit, the first word, that the service's operator has set for a
 * server. */
static bool may_set(const struct verb *verb, uint64_t most, uint64_t present)
{
	if (quota_is_operator(verb->uid) || terms_lower(most, present) == most)
		return true;
	refuse(verb, CUDA_ERROR_NOT_PERMITTED,
		"server %s has less: only root and the service's own user may set more", verb->words[0]);
	return false;
}

static void set_device_pinned_mem_limit(const struct verb *verb)
{
	struct domain *domain = find_server(verb, verb->words[0]);
	uint64_t bytes;

	if (!domain || !is_device(verb, verb->words[1]) || !parse_limit(verb, verb->words[2], &bytes))
		return;
	if (!may_set(verb, bytes, domain->memory_limit))
		return;
	domain->memory_limit = bytes;
	domain_changed(domain);
	note(verb,
		"programs of uid %lld that start from now on have at most %s of device memory on server %s",
		(long long)domain->identity.uid, verb->words[2], verb->words[0]);
}

static bool parse_percentage(const struct verb *verb, const char *word, uint32_t *ret_percent)
{
	if (percentage_parse(word, ret_percent))
		return true;
	refuse(verb, CUDA_ERROR_INVALID_VALUE, "%s is no percentage from 1 to 100", word);
	return false;
}

static void print_percentage(const struct verb *verb, uint64_t percent)
{
	answer_number(verb, percent);
	snprintf(verb->answer->text, sizeof(verb->answer->text), "%" PRIu64 ".0", percent);
}

static uint64_t default_percentage(const struct daemon *daemon)
{
	return terms_lower(100, terms_lower(daemon->sm_default, default_terms(daemon).sm_percent));
}

static void get_default_active_thread_percentage(const struct verb *verb)
{
	print_percentage(verb, default_percentage(verb->daemon));
}

static void set_default_active_thread_percentage(const struct verb *verb)
{
	uint32_t percent;

	if (!is_operator(verb) || !parse_percentage(verb, verb->words[0], &percent))
		return;
	verb->daemon->sm_default = percent;
	note(verb, "programs that start from now on have at most %u %% of the multiprocessors", percent);
	print_percentage(verb, default_percentage(verb->daemon));
}

static void print_percentage_of(const struct verb *verb, const struct domain *domain)
{
	print_percentage(verb, terms_lower(domain->sm_percent, default_percentage(verb->daemon)));
}

static void get_active_thread_percentage(const struct verb *verb)
{
	const struct domain *domain = find_server(verb, verb->words[0]);

	if (domain)
		print_percentage_of(verb, domain);
}

static void set_active_thread_percentage(const struct verb *verb)
{
	struct domain *domain = find_server(verb, verb->words[0]);
	uint32_t percent;

	if (!domain || !parse_percentage(verb, verb->words[1], &percent))
		return;
	if (!may_set(verb, percent, domain->sm_percent))
		return;
	domain->sm_percent = percent;
	domain_changed(domain);
	note(verb,
		"programs of uid %lld that start from now on have at most %u %% of the multiprocessors on "
		"server %s",
		(long long)domain->identity.uid, percent, verb->words[0]);
	print_percentage_of(verb, domain);
}

/* Stock MPS has two, normal and below that: the numbers of the classes. */
static void get_default_client_priority(const struct verb *verb)
{
	const struct daemon *daemon = verb->daemon;
	uint64_t class = default_terms(daemon).class;

	class = class > daemon->class_default ? class : daemon->class_default;
	answer_number(verb, class);
	snprintf(verb->answer->text, sizeof(verb->answer->text), "%" PRIu64, class);
}

static void set_default_client_priority(const struct verb *verb)
{
	uint64_t priority;

	if (!is_operator(verb))
		return;
	if (!parse_number(verb->words[0], CONFIG_CLASS_OFFLINE, &priority)) {
		refuse(verb, CUDA_ERROR_INVALID_VALUE, "%s is neither 0, normal, nor 1, below that",
			verb->words[0]);
		return;
	}
	verb->daemon->class_default = priority;
	note(verb, "programs that start from now on are %s",
		priority ? "offline" : "of the class in the configuration");
}

/*
 * Partitions
 */

/* Return: true if a partition that has `now` units may have as many as the word gives; otherwise
 * the answer is a refusal */
static bool parse_chunks(const struct verb *verb, const char *word, uint32_t now, uint32_t *ret_units)
{
	const struct backend_device *device = &verb->daemon->device;
	uint32_t most = partition_room(verb->daemon) + now;
	uint64_t units = 0;

	if (!verb->daemon->device_known || !device->sm_granule) {
		refuse(verb, CUDA_ERROR_NOT_SUPPORTED,
			"the device does not give out multiprocessors, or is not known yet");
	} else if (!parse_number(word, UINT32_MAX, &units) || !units) {
		refuse(verb, CUDA_ERROR_INVALID_VALUE, "%s is no number of chunks", word);
	} else if (units > most) {
		refuse(verb, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
			"%s chunks are more than it can have, %u: the device has %u of %u multiprocessors, "
			"and one stays for programs without a partition",
			word, most, device->sm_units, device->sm_granule);
		units = 0;
	}
	*ret_units = (uint32_t)units;
	return !verb->answer->code;
}

/* Everybody's multiprocessors may be others now. */
static void tell_partitions(struct daemon *daemon)
{
	struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		session_tell_share(session);
	session_wake_all(daemon);
}

static void note_partition(const struct verb *verb, const char *name, const char *what, uint32_t units)
{
	note(verb, "SM partition %s %s %u multiprocessors", name, what,
		units * verb->daemon->device.sm_granule);
}

/* Return: true if a new partition may have the label; otherwise the answer is a refusal */
static bool check_label(const struct verb *verb, const char *label)
{
	if (!*label || (partition_is_label(label) && !partition_find(verb->daemon, label)))
		return true;
	refuse(verb, CUDA_ERROR_INVALID_VALUE,
		partition_is_label(label) ? "there is a partition %s already"
					  : "%s is no name for a partition: lower-case letters, digits and "
					    "underscores, and not p and a number",
		label);
	return false;
}

static void add_partition(const struct verb *verb)
{
	const char *label = verb->count > 3 ? verb->words[3] : "";
	char uuid[UUID_TEXT], name[PARTITION_NAME];
	const struct partition *partition;
	uint32_t units;

	if (!check_label(verb, label) || !parse_chunks(verb, verb->words[2], 0, &units))
		return;
	partition = partition_add(verb->daemon, units, label);
	if (!partition) {
		refuse(verb, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
			"there are %u partitions, and no more can be", PARTITIONS_MAX);
		return;
	}
	partition_name(partition, name);
	daemon_uuid(verb->daemon, uuid);
	snprintf(verb->answer->text, sizeof(verb->answer->text), "Partition %s/%s created", uuid, name);
	note_partition(verb, name, "is made, of", units);
}

static void change_partition(const struct verb *verb, bool removes)
{
	struct partition *partition = partition_find(verb->daemon, verb->words[2]);
	char name[PARTITION_NAME];
	uint32_t units;

	if (!partition) {
		refuse(verb, CUDA_ERROR_NOT_FOUND, "there is no partition %s (lspart lists them)",
			verb->words[2]);
		return;
	}
	partition_name(partition, name);
	units = BACKEND_SMS_UNITS(partition->units);
	if (removes) {
		note(verb, "SM partition %s is removed: its programs, %u, go on as others do", name,
			partition_sessions(verb->daemon, partition->number));
		partition_remove(verb->daemon, partition);
	} else if (parse_chunks(verb, verb->words[3], units, &units)) {
		partition_resize(verb->daemon, partition, units);
		note_partition(verb, name, "has from now on", units);
	}
}

static void sm_partition(const struct verb *verb)
{
	const char *what = verb->words[0];
	bool adds = !strcmp(what, "add"), removes = !strcmp(what, "rm"), resizes = !strcmp(what, "resize");

	if ((!adds && verb->count != (resizes ? 4u : 3u)) || (!adds && !removes && !resizes))
		refuse(verb, CUDA_ERROR_INVALID_VALUE,
			"it takes add DEVICE CHUNKS [NAME], resize DEVICE PARTITION CHUNKS, or rm DEVICE "
			"PARTITION");
	else if (!is_operator(verb) || !is_device(verb, verb->words[1]))
		return;
	else if (adds)
		add_partition(verb);
	else
		change_partition(verb, removes);
	if (!verb->answer->code)
		tell_partitions(verb->daemon);
}

/*
 * Starting and ending
 */

/* Identity of a user's executors. Return: false with a refusal if the identity is not known without
 * a program of the user */
static bool identify(const struct verb *verb, uid_t uid, struct identity *ret_identity)
{
	struct identity self;

	*ret_identity = (struct identity){.uid = uid};
	if (verb->daemon->heritage->run_as != RUN_AS_PROGRAM)
		return true;
	identity_of_self(&self);
	if (self.uid != uid) {
		refuse(verb, CUDA_ERROR_NOT_SUPPORTED,
			"it is not supported for other users where executors are started as their users: his "
			"first program starts his");
		return false;
	}
	*ret_identity = self;
	return true;
}

static void start_server(const struct verb *verb)
{
	struct daemon *daemon = verb->daemon;
	struct identity identity;
	struct domain_refusal refusal;
	uint64_t uid;

	/* The last number stands for nobody in the kernel's calls. */
	if (strcmp(verb->words[0], "-uid") || !parse_number(verb->words[1], UINT32_MAX - 1, &uid)) {
		refuse(verb, CUDA_ERROR_INVALID_VALUE, "it takes -uid and the number of a user");
	} else if (!quota_is_operator(verb->uid) && verb->uid != (uid_t)uid) {
		refuse(verb, CUDA_ERROR_NOT_PERMITTED,
			"only root and the service's own user may start another user's");
	} else if (daemon_has_failed(daemon)) {
		refuse(verb, (CUresult)daemon->health.code, "%s", daemon->health.reason);
	} else if (identify(verb, (uid_t)uid, &identity)) {
		if (domain_of(daemon, &identity, NULL, false, &refusal))
			note(verb, "executors of uid %llu", (unsigned long long)uid);
		else
			refuse(verb, (CUresult)refusal.code, "%s", refusal.text);
	}
}

static void shutdown_server(const struct verb *verb)
{
	const bool at_once = verb->count == 2;
	struct domain *domain;

	if (at_once && strcmp(verb->words[1], "-f")) {
		refuse(verb, CUDA_ERROR_INVALID_VALUE, "it takes a server, and -f");
		return;
	}
	domain = find_server(verb, verb->words[0]);
	if (!domain)
		return;
	note(verb, "server %s of uid %lld ends%s", verb->words[0], (long long)domain->identity.uid,
		at_once ? ", and its programs" : " with its last program");
	domain_dismiss(domain);
	if (at_once)
		sessions_end_all(verb->daemon, domain, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED,
			"an operator has shut its server down");
}

static void quit(const struct verb *verb)
{
	uint64_t seconds = verb->daemon->stop_seconds;

	if (verb->count && (verb->count != 2 || strcmp(verb->words[0], "-t") ||
				   !parse_number(verb->words[1], STOP_SECONDS_MAX, &seconds))) {
		refuse(verb, CUDA_ERROR_INVALID_VALUE, "it takes nothing, or -t and up to %d seconds",
			STOP_SECONDS_MAX);
	} else if (is_operator(verb)) {
		note(verb, "the service ends, programs have %" PRIu64 " s to finish", seconds);
		verb->answer->stops = true;
		verb->answer->stop_seconds = seconds;
	}
}

static const struct {
	const char *name;
	unsigned least, most;
	void (*run)(const struct verb *verb);
} verbs[] = {
#define COMMAND(name, function, help)
#define VERB(name, function, least, most, help) {#name, least, most, function},
#include "server/control/commands.def"
#undef COMMAND
#undef VERB
};

void mps_do(struct daemon *daemon, uid_t uid, const struct caller_request *request, struct mps_answer *ret)
{
	struct verb verb = {.daemon = daemon,
		.uid = uid,
		.name = request->command,
		.count = request->argument_count,
		.answer = ret};

	*ret = (struct mps_answer){.code = CUDA_SUCCESS};
	for (unsigned i = 0; i < verb.count && i < OPERATOR_ARGUMENTS_MAX; i++)
		verb.words[i] = request->arguments[i];
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(verbs[i].name, verb.name))
			continue;
		if (verb.count < verbs[i].least || verb.count > verbs[i].most)
			refuse(&verb, CUDA_ERROR_INVALID_VALUE, "it takes %u arguments to %u, and not %u",
				verbs[i].least, verbs[i].most, verb.count);
		else
			verbs[i].run(&verb);
		return;
	}
	refuse(&verb, CUDA_ERROR_NOT_FOUND, "the service does not know it");
}
