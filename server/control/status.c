// Status. See status.h. Names are part of the operator's interface: added to, never changed.
//
//   version, backend, socket   texts
//   devices			number of the service's devices; each has a status of its own
//   left_out			a list, of GPUs that key `devices` (all) would have, and that could not be served at the start
//     gpu, uuid		as CUDA counts; uuid: null if the driver does not tell it
//     reason, remedy		texts
//   pid, uptime_seconds	the daemon's process; how long the service has run
//   stop_ms	during a shutdown: the time that is left for present programs; else null
//   holder			process that takes signals and starts the daemon again
//   ready			true once keeper and a first executor were up
//   keeper			null or
//     pid, state		state: starting, serving, terminating
//     overdue_seconds		0, or the time for which an answer is missing: requests for device memory wait, until
// 				the keeper is replaced after a minute
//   proof			null: the backend needs none; or whether faults of kernels were proved to be contained
//     proved			false: executors leave faults to the driver, and each fault ends its executor
//     ms			length of the trial
//     reason			only when not proved: the reason
//   device			zeros before an executor was up
//     name, total_bytes, driver_version, multiprocessors; total_bytes: device_memory, or the GPU's
//     number			place among the service's devices
//     uuid			as the driver's tools write it; logical devices have similar UUIDs
//     chunks, chunk_multiprocessors	units of granting multiprocessors: their number, and the size of each; 0: unsupported
//     free_chunks		chunks that SM partitions can still have
//     unheld_bytes		exported memory that no program has any more, but somebody's descriptor preserves
//     compute_mode		default, or exclusive: a single process may have a context, so there is no standby
//     state			serving; draining, drained: by an operator (daemon/device_drain.h); or failed: nobody is served before
// 				the service is restarted
//     code, reason		only when failed: the CUresult that programs get, and the reason
//   partitions			a list, of SM partitions
//     name
//     label			a second name; only if an operator has set a label
//     chunks, multiprocessors	of the partition
//     clients			programs in the partition, of all users
//   run_as			of executors
//     who			service, user, program: the rights that executors have (server/role.h)
//     reason			only if root's service runs executors as root: why
//   swap			device memory of suspended programs, of all users
//     bytes, most_bytes	that is in host memory, and that may be
//     directory_bytes		that is in swap_directory
//     stash_bytes		device memory with a copy of programs that are saved, until that is in files (standby/stash.h)
//     users			a list of users with some, each with his subordinate users (session/owner.h); users other
// 				than root and the service's user see only their own
// 	 uid
// 	 bytes, most_bytes	in host memory, and at most there (swap_host_bytes)
// 	 directory_bytes	in swap_directory
//   domains			a list; users other than root and the service's user see only their own
//     uid			null: nobody's yet
//     alone			null, or the reason why the domain is for a single program
//     state			waiting, activating, steady, halting, fencing
//     generation		of the executor that serves, counted from 1
//     verdict			null, or a sentence about the latest fault or promotion
//     verdict_ms		null, or the time of the verdict, milliseconds since the epoch
//     unpinning_bytes		pinned host memory that was freed, or whose program ended, and that stays
// 				pinned until nothing runs
//     executors		a list
// 	 pid, role		role: active, standby
// 	 state			starting, warming, warm, active, terminating
// 	 generation		0: has never served
// 	 behind			messages without a confirmation; a standby takes over at 0
// 	 immovable		number of sessions that this standby cannot take over
// 	 contains		false: a fault ends this executor: the driver or device is unknown to it, or Ready is
// 				missing
//     clients			a list
// 	 session, pid, program, uid
// 	 cgroup			null; or the process's control group at the time of its connection
// 	 state			opening, running, paused, suspended, restoring, held, faulted, closed, closing. A session
// 				that is paused before an executor knows it is opening first; one in restoring has
// 				not all of its memory yet
// 	 memory_bytes		device memory that is mapped now, in whole chunks
// 	 swapped_bytes		device memory of a suspended session that is off the device now; shared memory counts
// 				for one of the sessions
// 	 suspended_with		a list: numbers of the sessions that share device memory with this one, and leave and
// 				come back with it; empty while the memory is not on the way or away
// 	 swap_directory_bytes	of these, in swap_directory; the rest is in host memory
// 	 host_bytes		pinned host memory that is mapped now
// 	 image_bytes		images of its modules
// 	 staging_bytes		room in the service's host memory for copies
// 	 sink_bytes		the service's device memory for the guard; no part of the limit
// 	 commands		given to the service so far
// 	 recovery		fail, replay
// 	 memory_limit, memory_guarantee, pinned_limit, image_limit	bytes; 0: none
// 	 weight, class		asked for; class: online, offline
// 	 sm_percent		most multiprocessors, in percent: asked for
// 	 sm_partition		null, or the name of its SM partition
// 	 multiprocessors	granted, for certain: all of the device's, or fewer
// 	 device_ms		time on the device, as far as counted. Nothing is counted while no program of the
// 				executor has a weight other than 100 or is offline
// 	 sections		null; or the sections of the configuration that apply
// 	 promotions		number of changes to another executor
// 	 error			only when faulted or closed
// 	   code, reason		the program's CUresult, and the reason
//   counters			whole numbers since the service's start, counters.def
//   events			the same, of each kind of event (session/events.def)
//   driver_loads		modules that the driver loaded, by reason (backend/load_reason.def); none: left out

#include "server/control/status.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/place.h"
#include "protocol/uuid.h"
#include "server/backend/unfit.h"
#include "server/config/config.h"
#include "server/config/devices.h"
#include "server/control/document.h"
#include "server/daemon/device.h"
#include "server/incident/incident.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/events.h"
#include "server/session/export.h"
#include "server/session/guarantee.h"
#include "server/session/owner.h"
#include "server/session/partition.h"
#include "server/session/unpinning.h"
#include "server/daemon/quota.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/standby/stash.h"
#include "server/standby/swap.h"
#include "server/version.h"
#include "server/fault/overdue.h"
#include "server/worker/worker.h"

/* A text from elsewhere, names of kernels for example. */
static json_t *foreign(const char *text)
{
	char *copy = strdup(text);
	json_t *json;

	if (!copy)
		return NULL;
	log_clean(copy);
	json = json_string(copy);
	free(copy);
	return json;
}

static const char *state_text(const struct session *session)
{
	static const char *const shared[] = {"unknown", "running", "held", "faulted", "closed"};
	uint32_t state;

	if (session->state == SESSION_OPENING)
		return "opening";
	if (session->state == SESSION_CLOSING)
		return "closing";
	if (session->state == SESSION_SERVED && session->filled != SESSION_FILLED)
		return "restoring";
	state = word_acquire(&session->view.server->state);
	if (state == SHM_SESSION_RUNNING &&
		(session->memory == SESSION_MEMORY_AWAY || session->memory == SESSION_MEMORY_RETURNS))
		return "suspended";
	if (state == SHM_SESSION_RUNNING && session_is_paused(session))
		return "paused";
	return shared[state <= SHM_SESSION_CLOSED ? state : 0];
}

/* Commands that the session ever gave to the service. */
static uint64_t count_commands(const struct session *session)
{
	uint32_t used = shm_view_used(&session->view);
	uint64_t sum = 0;

	for (uint32_t slot = 0; slot < used; slot++)
		sum += word_relaxed(&session->view.states[slot].journaled);
	return sum;
}

static json_t *partition_of(const struct session *session)
{
	struct partition partition = {.number = session->partition};
	char name[PARTITION_NAME];

	partition_name(&partition, name);
	return partition_units(session->daemon, session->partition) ? json_string(name) : json_null();
}

/* Identity by the kernel, and terms of the session. */
static void add_terms(json_t *json, const struct session *session)
{
	const struct subject *subject = &session->subject;
	char sections[600];

	terms_describe(&session->daemon->rules, subject, sections, sizeof(sections));
	json_object_set_new(
		json, "executable", *subject->executable ? foreign(subject->executable) : json_null());
	json_object_set_new(json, "cgroup", *subject->cgroup ? foreign(subject->cgroup) : json_null());
	json_object_set_new(json, "sections", *sections ? foreign(sections) : json_null());
	json_object_set_new(json, "memory_limit", json_integer((json_int_t)session->terms.memory_limit));
	json_object_set_new(
		json, "memory_guarantee", json_integer((json_int_t)session->terms.memory_guarantee));
	json_object_set_new(json, "pinned_limit", json_integer((json_int_t)session->terms.pinned_limit));
	json_object_set_new(json, "weight", json_integer((json_int_t)session->terms.weight));
	json_object_set_new(json, "class",
		json_string(session->terms.class == CONFIG_CLASS_OFFLINE ? "offline" : "online"));
	json_object_set_new(json, "sm_partition", partition_of(session));
	json_object_set_new(json, "sm_percent", json_integer((json_int_t)session->terms.sm_percent));
	json_object_set_new(json, "multiprocessors", json_integer((json_int_t)session_sms(session)));
	json_object_set_new(json, "device_ms",
		json_integer((json_int_t)(word_relaxed(&session->view.server->device_ns) / 1000000)));
	json_object_set_new(json, "image_limit", json_integer((json_int_t)session->terms.image_limit));
}

/* Return: the numbers of sessions */
static json_t *suspended_with(const struct session *session)
{
	const struct session *other;
	json_t *numbers = json_array();

	TAILQ_FOREACH (other, &session->daemon->sessions, link)
		if (other != session && swap_is_with(other, session))
			json_array_append_new(numbers, json_integer((json_int_t)other->number));
	return numbers;
}

/* Memory of the service for this session. */
static void add_service_bytes(json_t *json, const struct session *session)
{
	uint64_t sink = session->sink ? SINK_BYTES : 0;
	uint64_t away = session->holdings.away_bytes;
	struct swap_bytes bytes = {0};

	json_object_set_new(json, "staging_bytes", json_integer((json_int_t)session->view.shape.arena_bytes));
	json_object_set_new(json, "sink_bytes", json_integer((json_int_t)sink));
	json_object_set_new(json, "swapped_bytes", json_integer((json_int_t)away));
	json_object_set_new(json, "suspended_with", suspended_with(session));
	swap_add_bytes(session, &bytes);
	json_object_set_new(
		json, "swap_directory_bytes", json_integer((json_int_t)(bytes.directory ? away : 0)));
}

static json_t *session_json(const struct session *session)
{
	const struct shm_server_header *header = session->view.server;
	uint32_t state = word_acquire(&header->state), servings = word_relaxed(&header->servings);
	json_t *json = json_pack("{sI si so sI ss sI sI sI sI ss si}", "session", (json_int_t)session->number,
		"pid", (int)session->pid, "program", foreign(session->program), "uid",
		(json_int_t)session->uid, "state", state_text(session), "memory_bytes",
		(json_int_t)holdings_mapped_bytes(&session->holdings), "host_bytes",
		(json_int_t)session->holdings.host_bytes, "image_bytes",
		(json_int_t)session->holdings.image_bytes, "commands", (json_int_t)count_commands(session),
		"recovery", session->recovery ? "replay" : "fail", "promotions",
		(int)(servings ? servings - 1 : 0));

	if (json)
		add_service_bytes(json, session);
	if (json)
		add_terms(json, session);
	if (json && (state == SHM_SESSION_FAULTED || state == SHM_SESSION_CLOSED))
		json_object_set_new(json, "error",
			json_pack("{si so}", "code", (int)word_relaxed(&header->error), "reason",
				foreign(header->reason)));
	return json;
}

static json_t *executor_json(const struct worker *worker)
{
	return json_pack("{si ss ss si si si sb}", "pid", (int)worker->pid, "role",
		worker->domain->active == worker ? "active" : "standby", "state",
		worker_state_name(worker->state), "generation", (int)worker->generation, "behind",
		(int)worker->mirrors, "immovable", (int)worker->immovable_count, "contains",
		worker->contains);
}

static json_t *domain_json(const struct domain *domain)
{
	json_t *executors = json_array(), *sessions = json_array();
	const char *verdict = domain->promotion.verdict_text;
	const struct session *session;
	const struct worker *worker;

	TAILQ_FOREACH (worker, &domain->workers, link)
		json_array_append_new(executors, executor_json(worker));
	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session->view.server && !session_is_elsewhere(session))
			json_array_append_new(sessions, session_json(session));
	return json_pack("{so so ss si so so sI so so}", "uid",
		domain->use != DOMAIN_NOBODYS ? json_integer(domain->identity.uid) : json_null(), "alone",
		domain_is_alone(domain) ? foreign(domain->reason) : json_null(), "state",
		incident_phase_name(domain->promotion.state), "generation", (int)domain->generation,
		"verdict", *verdict ? foreign(verdict) : json_null(), "verdict_ms",
		*verdict ? json_integer(domain->promotion.verdict_ms) : json_null(), "unpinning_bytes",
		(json_int_t)unpinning_bytes(domain), "executors", executors, "clients", sessions);
}

static json_t *counters_json(const struct daemon *daemon)
{
	struct counters all = daemon->counters;
	json_t *counters = json_object();
	const struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		all.requests += session->requests;
#define COUNTER(name, help) json_object_set_new(counters, #name, json_integer((json_int_t)all.name));
#include "server/session/counters.def"
#undef COUNTER
	return counters;
}

static json_t *event_counters_json(const struct daemon *daemon)
{
	json_t *counters = json_object();

	for (unsigned i = 0; i < EVENT_KINDS; i++)
		json_object_set_new(
			counters, events_kind_name(i), json_integer((json_int_t)daemon->counters.events[i]));
	return counters;
}

static json_t *driver_loads_json(const struct daemon *daemon)
{
	json_t *counters = json_object();

	for (unsigned i = LOAD_REASON_NONE + 1; i < LOAD_REASONS; i++)
		if (daemon->counters.driver_loads[i])
			json_object_set_new(counters, load_reason_text(i),
				json_integer((json_int_t)daemon->counters.driver_loads[i]));
	return counters;
}

static json_t *domains_json(const struct daemon *daemon, uid_t uid, bool all)
{
	json_t *domains = json_array();
	const struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (all || (domain->use != DOMAIN_NOBODYS && domain->identity.uid == uid))
			json_array_append_new(domains, domain_json(domain));
	return domains;
}

static json_t *keeper_json(const struct daemon *daemon)
{
	const struct worker *keeper = daemon->keeper;

	if (!keeper)
		return json_null();
	return json_pack("{si ss si}", "pid", (int)keeper->pid, "state",
		keeper->state == WORKER_WARM ? "serving" : worker_state_name(keeper->state),
		"overdue_seconds", (int)overdue_s(keeper));
}

/* In the format of NVIDIA's tools; CUDA does not report the function, which is 0. */
static json_t *pci_json(const int32_t *attributes)
{
	return json_sprintf("%04x:%02x:%02x.0", (unsigned)attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID],
		(unsigned)attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID],
		(unsigned)attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]);
}

static json_t *left_out_json(const struct devices *devices)
{
	static const uint8_t unknown[16];
	json_t *list = json_array();

	for (unsigned i = 0; devices && i < devices->left_count; i++) {
		char uuid[UUID_TEXT];

		uuid_text(devices->left[i].uuid, uuid);
		json_array_append_new(
			list, json_pack("{si ss* ss ss}", "gpu", devices->left[i].index, "uuid",
				      memcmp(devices->left[i].uuid, unknown, sizeof(unknown)) ? uuid : NULL,
				      "reason", unfit_text(devices->left[i].unfit), "remedy",
				      unfit_remedy(devices->left[i].unfit)));
	}
	return list;
}

static json_t *device_json(const struct daemon *daemon)
{
	const struct backend_device *device = &daemon->device;
	const struct device_health *health = &daemon->health;
	char uuid[UUID_TEXT];
	json_t *json = json_pack("{so sI si si ss}", "name", foreign(device->name), "total_bytes",
		(json_int_t)guarantee_device_bytes(daemon), "driver_version", (int)device->driver_version,
		"multiprocessors", (int)device->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT], "state",
		device_state_name(health->state));

	daemon_uuid(daemon, uuid);
	if (json) {
		json_object_set_new(json, "number", json_integer(daemon->heritage->number));
		json_object_set_new(json, "uuid", json_string(uuid));
		json_object_set_new(json, "compute_mode",
			json_string(daemon->heritage->exclusive ? "exclusive" : "default"));
		json_object_set_new(json, "pci", pci_json(device->attributes));
		json_object_set_new(json, "chunks", json_integer(device->sm_units));
		json_object_set_new(json, "chunk_multiprocessors", json_integer(device->sm_granule));
		json_object_set_new(json, "free_chunks", json_integer(partition_room(daemon)));
		json_object_set_new(json, "unheld_bytes",
			json_integer((json_int_t)exports_unheld_bytes(&daemon->exports)));
	}
	if (json && daemon_has_failed(daemon)) {
		json_object_set_new(json, "code", json_integer(health->code));
		json_object_set_new(json, "reason", foreign(health->reason));
	}
	return json;
}

static json_t *proof_json(const struct proof *proof)
{
	json_t *json;

	if (proof->state == PROOF_NONE)
		return json_null();
	json = json_pack("{sb si}", "proved", proof->state == PROOF_GOOD, "ms", (int)proof->ms);
	if (json && proof->state == PROOF_FAILED)
		json_object_set_new(json, "reason", foreign(proof->why));
	return json;
}

/* As whom executors run. */
static json_t *run_as_json(const struct heritage *heritage)
{
	static const char *const names[] = {
		[RUN_AS_SERVICE] = "service", [RUN_AS_USER] = "user", [RUN_AS_PROGRAM] = "program"};

	return json_pack("{ss ss*}", "who", names[heritage->run_as], "reason",
		heritage->run_as_why[0] ? heritage->run_as_why : NULL);
}

static json_t *partition_json(const struct daemon *daemon, const struct partition *partition)
{
	uint32_t units = BACKEND_SMS_UNITS(partition->units);
	char name[PARTITION_NAME];

	partition_name(partition, name);
	return json_pack("{ss ss* si si si}", "name", name, "label",
		*partition->label ? partition->label : NULL, "chunks", (int)units, "multiprocessors",
		(int)(units * daemon->device.sm_granule), "clients",
		(int)partition_sessions(daemon, partition->number));
}

static json_t *partitions_json(const struct daemon *daemon)
{
	json_t *partitions = json_array();

	for (uint32_t i = 0; i < daemon->partitions.count; i++)
		json_array_append_new(partitions, partition_json(daemon, &daemon->partitions.all[i]));
	return partitions;
}

/* Of one user. Return: NULL: he has none */
static json_t *swap_user_json(const struct daemon *daemon, uid_t owner)
{
	const struct swap_bytes bytes = swap_bytes_of(daemon, &owner);

	if (!bytes.host && !bytes.directory)
		return NULL;
	return json_pack("{sI sI sI sI}", "uid", (json_int_t)owner, "bytes", (json_int_t)bytes.host,
		"most_bytes", (json_int_t)swap_budget(daemon, owner), "directory_bytes",
		(json_int_t)bytes.directory);
}

static json_t *swap_json(const struct daemon *daemon, uid_t uid, bool all)
{
	const struct swap_bytes bytes = swap_bytes_of(daemon, NULL);
	const uid_t owner = owner_of(uid);
	json_t *users = json_array(), *user;
	const struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link) {
		user = (all || session->owner == owner) && session_is_first_of_owner(session)
			       ? swap_user_json(daemon, session->owner)
			       : NULL;
		if (user)
			json_array_append_new(users, user);
	}
	return json_pack("{sI sI sI sI so}", "bytes", (json_int_t)bytes.host, "most_bytes",
		(json_int_t)swap_most_bytes(daemon), "directory_bytes", (json_int_t)bytes.directory,
		"stash_bytes", (json_int_t)stash_bytes(daemon), "users", users);
}

static json_t *stop_json(const struct daemon *daemon)
{
	uint64_t now_us = timer_now_us(), until_us = daemon->stop_until_us;

	return daemon->phase >= DAEMON_STOPS
		       ? json_integer((json_int_t)(until_us > now_us ? (until_us - now_us) / 1000 : 0))
		       : json_null();
}

char *status_json(const struct daemon *daemon, uid_t uid)
{
	bool all = quota_is_operator(uid);
	char path[PLACE_BYTES];

	daemon_socket(daemon, path);
	return document_text(json_pack("{ss ss so si so si si sI so sb so so so so so so so so so so}",
		"version", SERVER_VERSION, "backend", daemon->heritage->backend, "socket", foreign(path),
		"devices", (int)daemon_devices(daemon), "left_out", left_out_json(daemon->heritage->devices),
		"pid", (int)getpid(), "holder", (int)getppid(), "uptime_seconds",
		(json_int_t)((timer_now_us() - daemon->started_us) / 1000000), "stop_ms", stop_json(daemon),
		"ready", daemon->phase != DAEMON_STARTS, "keeper", keeper_json(daemon), "device",
		device_json(daemon), "proof", proof_json(&daemon->heritage->proof), "run_as",
		run_as_json(daemon->heritage), "partitions", partitions_json(daemon), "swap",
		swap_json(daemon, uid, all), "domains", domains_json(daemon, uid, all), "counters",
		counters_json(daemon), "events", event_counters_json(daemon), "driver_loads",
		driver_loads_json(daemon)));
}
