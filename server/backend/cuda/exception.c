// When a kernel faults, the kernel-mode driver stops the multiprocessors and reports this
// (debugger.h). The driver's own thread would then copy the code of everything that is loaded,
// write a dump, and have the channel reset, which ends the context. None of that happens here: that
// thread is blocked where it opens its debugger (contain.c), and the service's thread acts instead:
//
//   event ─► stop all warps ─► read records ─► name the kernels that faulted ─► overwrite their code ─► release ─► resume
//              (suspected, stopped)              (contained or uncontained)
//
// Every stopped warp has a record in the save area (warps.h). The record has the state of the warp,
// and leads to the descriptor of the grid and so to the kernel's entry; code.h knows the owner. A
// warp with an access to an unmapped address has no record: the warp is over, and the error state
// of its multiprocessor has the program counter. Another warp may have come into the slot since,
// which is stopped before its first instruction: its record then has the error of its predecessor.
//
// A released warp would go on behind the instruction that faulted, and blocks that have not begun
// begin. So the whole code of a kernel that faulted is overwritten with EXIT first. Each of its
// stopped warps that is elsewhere goes on in that code (handler.h), for example a warp in the
// driver's assert(), or after a jump to a bad address. Then its grid is over, however large,
// nothing of the kernel stays on the device, and requests that wait for an idle device do not wait
// for ever.
//
// The culprit is decided before any warp goes on, and no completion is published until then
// (backend.h, struct backend_watch). Where a kernel cannot be named, nobody is guessed: the fault
// is not contained.
//
// The same means end kernels that have not faulted and do not end (exception_end()): stop,
// overwrite the code of those that are on the device and of the named modules, release, resume.
// Code that lies on the device belongs to a single module, and a module to a single program, so
// nobody else's kernels are changed.
//   - Only kernels that have a stopped warp are overwritten. A module can have thousands of
//     kernels, and writing all their code would stop everybody for longer. This is also safe: a
//     module is unloaded only while nothing runs, so the code of a kernel that runs is still there.
//     A kernel of the module that waits in a queue needs another call.
//   - Blocks that have not begun, and launches of the same kernel that are queued, begin and exit.
//   - A warp that is elsewhere, in a function of its module or of the driver, goes to its kernel's
//     code, and exits there. If its module may call malloc(), the warp may be inside malloc(). Then
//     the warp returns to its kernel by itself, and from a function without end does not return.
// An exception that is found during that stop is handled like any other. The caller names the
// modules while all stand still: the name of a module that is unloaded before may have passed to
// another program's. Before any kernel is ended the caller is asked, and learns which modules have
// a kernel on the device at all: a program that waits for another program's kernels is not to
// blame.
//
// Measured on an H200 (driver 580.159.04) with a single warp that faults beside programs with
// kernels of 100 us: the event comes 4 to 9 ms after the fault, stop 1 to 4 ms, error states 0.4,
// records 0.1 (8448 of them 4), code 0.1, resume 1.2. The same beside 1000 blocks.
//
// Slower cases, with reasons (H100, driver 580.159.04):
//   - The event follows the lines that the driver's firmware writes into the kernel log (Xid 13):
//     two for each multiprocessor with an error of its own, three where several of its warps have
//     errors, and 1.6 ms for each line. A grid that faults on all 132 multiprocessors has 396 lines
//     and takes 0.68 s. No control comes through meanwhile, and no mode of the debugger object that
//     was tried writes fewer. A trap or an assertion has no line: 14 ms for 1000 blocks.
//   - Blocks of a single warp with a write to an unmapped address are over at once, and others
//     begin in their places: one for each multiprocessor and each round of lines, which takes 0.42
//     s (H200). 5000 such blocks are contained after 3.2 s. With more blocks left the firmware
//     abandons the context 4.9 s after the first line, and no control came through before.
//   - Beside another context with work of its own a stop takes 15 to 40 ms. Where two contexts with
//     kernels on all multiprocessors were stopped and resumed at the same time, a resume took 60 to
//     180 ms, and twice a context did not go on until another resume. Two such processes that
//     faulted again and again got no event for a trap after 1 to 14 rounds. So the thread also
//     checks twice a second for stopped warps: if some are stopped for four seconds, nobody has
//     announced the reason.
//   - Before the event, and before the lines, the firmware goes through the device's channels, in
//     the order of their creation, up to the kernel's: 0.5 ms for each, of any owner (H200). An
//     idle context that was made before costs 64 ms with 32 queues, 16 with 8; a context that was
//     made later costs nothing, and one that was made at the same time something between
//     (domain_fill()). In the context itself a new stream of 32 queues cost 1 ms more than its
//     predecessor, up to 35 ms (stream.c). Otherwise the event comes 4 ms after a trap, and 6 to 9
//     after an exception that has lines.
//   - The save area shows the first stopped warps within a millisecond. But a stop that is
//     requested then is answered when the firmware is done, no sooner than a stop that waits for
//     the event.
//   - At the first exception of a context warps that went on were stopped again at once, with no
//     exception of their own, in 19 contexts of 34: up to five rounds, 15 to 80 ms. At later
//     exceptions never (some 140), and not in 28 contexts beside a kernel without end. So an
//     executor rehearses a fault before it serves (trial.h).

#include "server/backend/cuda/exception.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/backend/cuda/code.h"
#include "server/backend/cuda/contain.h"
#include "server/backend/cuda/debugger.h"
#include "server/backend/cuda/finding.h"
#include "server/backend/cuda/handler.h"
#include "server/detached.h"
#include "server/log.h"

/* A fault during the handling of another is seen when that is done. A program whose kernels fault
 * again and again is ended at the first fault. */
#define ROUNDS_MAX 64
/* EXIT, with no predicate and no barrier, for compute capability 7.0 to 9.0. */
static const uint64_t exit_instruction[2] = {UINT64_C(0x794d), UINT64_C(0x000fea0003800000)};
#define FILL_BYTES 4096u
/* For a released warp to be back on the device: at first, and at last. Other contexts have the
 * device for some milliseconds. */
#define BACK_LEAST_MS 200u
#define BACK_MOST_MS  1600u
/* For the rest of them, after the first. */
#define REST_MS 10u
/* Kernels whose stopped warps are sent to their code at the release; warps of further kernels go on
 * in place. */
#define ENDED_MAX 128u
/* Between two looks for a fault that was not announced, and looks in a row that find stopped warps.
 * Announcements take up to 1.4 s where many multiprocessors have errors. */
#define LOOK_MS 500
#define LOOKS	8u
/* Clearing the error states of all multiprocessors takes as long as clearing so many singly (36 and
 * 0.5 ms). */
#define CLEAR_EACH_MAX 64u

/* A kernel with overwritten code. */
struct ended {
	uint64_t entry;
	bool calls; /* as struct code */
};

/* The request and the results of exception_end() in one stop. */
struct ending {
	const struct backend_ending *asked;
	struct backend_module **modules;
	uint32_t module_count;
	char *kernel;  /* BACKEND_KERNEL_BYTES: the name of the first that was ended */
	bool is_there; /* a kernel of the modules is on the device */
	bool others;   /* a kernel of others is */
};

static struct {
	pthread_mutex_t lock; /* held from stop to resume; of the following */
	int event;
	_Atomic bool is_open;
	void *area;
	uint32_t sms; /* multiprocessors of the device */
	struct debugger_state states[WARPS_SMS];
	struct finding finding;
	/* In all rounds of a handling: a warp can be stopped again before reaching the target of a
	 * round (WARP_HELD). */
	struct ended ended[ENDED_MAX];
	uint32_t ended_count;
	uint32_t released[WARPS_COUNT]; /* by the latest release(): indices */
	uint32_t released_count;
	bool is_taught;	   /* the handler is unchanged: checked since the latest stop */
	uint32_t looks;	   /* in a row that have found stopped warps; the thread's alone */
	bool is_abandoned; /* the executor is to be replaced, and warps may stay stopped until then */
} exception = {.lock = PTHREAD_MUTEX_INITIALIZER, .event = -1};

static bool read_states(void)
{
	bool read = true;

	memset(exception.states, 0, sizeof(exception.states));
	for (uint32_t sm = 0; sm < exception.sms && read; sm += DEBUGGER_STATES_MAX) {
		uint32_t left = exception.sms - sm;

		read = debugger_read_states(
			sm, left < DEBUGGER_STATES_MAX ? left : DEBUGGER_STATES_MAX, &exception.states[sm]);
	}
	return read;
}

static uint32_t count_errors(void)
{
	uint32_t count = 0;

	for (uint32_t sm = 0; sm < exception.sms; sm++)
		count += finding_is_error(&exception.states[sm]);
	return count;
}

/* Otherwise the states stay, and the next fault would look like this fault. */
static void clear_states(void)
{
	bool cleared = true;

	if (count_errors() > CLEAR_EACH_MAX)
		cleared = debugger_clear_states(exception.sms);
	else
		for (uint32_t sm = 0; sm < exception.sms; sm++)
			cleared &= !finding_is_error(&exception.states[sm]) || debugger_clear_state(sm);
	if (!cleared)
		log_warning("the error states of multiprocessors cannot be cleared");
}

/* ---- consequences ---- */

/* True if the code that begins there is overwritten. */
static bool is_overwritten(uint64_t entry)
{
	uint64_t first[2];

	return debugger_read(entry, first, sizeof(first)) && !memcmp(first, exit_instruction, sizeof(first));
}

/* Other code may lie there since an earlier round. */
static void forget_replaced(void)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < exception.ended_count; i++)
		if (is_overwritten(exception.ended[i].entry))
			exception.ended[left++] = exception.ended[i];
	exception.ended_count = left;
}

static bool overwrite(const struct code *code)
{
	uint64_t fill[FILL_BYTES / sizeof(uint64_t)];
	bool done = true;

	for (uint32_t i = 0; i < FILL_BYTES / sizeof(uint64_t); i++)
		fill[i] = exit_instruction[i % 2];
	for (uint64_t at = 0; at < code->bytes && done; at += FILL_BYTES) {
		uint64_t left = code->bytes - at;

		done = debugger_write(
			code->entry + at, fill, left < FILL_BYTES ? (uint32_t)left : FILL_BYTES);
	}
	return done && code->bytes;
}

static const struct ended *find_ended(uint64_t entry)
{
	for (uint32_t i = 0; i < exception.ended_count; i++)
		if (exception.ended[i].entry == entry)
			return &exception.ended[i];
	return NULL;
}

/* Return: true if all warps of the kernel end, the stopped warps after the release, others when
 * they begin */
static bool end_all_of(const struct code *code)
{
	/* Once a stop is enough: nobody changes the handler meanwhile. */
	exception.is_taught = exception.is_taught || handler_is_taught();
	if (!exception.is_taught) {
		log_warning("the driver's trap handler has changed");
		return false;
	}
	if (find_ended(code->entry))
		return true;
	if (!overwrite(code))
		return false;
	if (exception.ended_count < ENDED_MAX)
		exception.ended[exception.ended_count++] = (struct ended){code->entry, code->calls};
	return true;
}

/* Return: true if their grids end */
static bool end_grids(const struct finding *finding)
{
	bool ends = true;

	for (uint32_t i = 0; i < finding->count; i++)
		ends &= end_all_of(&finding->code[i]);
	return ends;
}

/* For a warp in nobody's code: in malloc() of the device's heap, perhaps, which all programs of the
 * context share. Such a warp, sent away, would hold the heap's locks for ever, or leave the heap in
 * disorder. The warp returns to its kernel, and exits there. */
static bool is_to_return(const struct ended *kernel, const struct warp *warp)
{
	return kernel->calls && !warp->error;
}

/* Return: where to send a warp that is elsewhere, for exiting; 0: the warp goes on, and exits if
 * its place is in overwritten code */
static uint64_t leads_to(struct finding *finding, uint32_t index)
{
	uint64_t entry =
		exception.ended_count ? finding_entry(finding, warps_task(exception.area, index)) : 0;
	const struct ended *kernel = find_ended(entry);
	struct warp warp;
	struct code at;
	bool goes_on;

	if (!kernel || !warps_read(exception.area, index, &warp))
		return 0;
	goes_on = code_find(warp.return_to, &at) ? at.entry == entry : is_to_return(kernel, &warp);
	return goes_on ? 0 : entry;
}

static void release(struct finding *finding)
{
	exception.released_count = 0;
	for (uint32_t i = warps_next(exception.area, 0); i < WARPS_COUNT;
		i = warps_next(exception.area, i + 1)) {
		warps_release(exception.area, i, leads_to(finding, i));
		exception.released[exception.released_count++] = i;
	}
	/* Makes them visible to the device before the resume. */
	atomic_thread_fence(memory_order_seq_cst);
}

static void give_up(const struct backend_watch *watch, const struct backend_fault *faults, uint32_t count)
{
	exception.is_abandoned = true;
	watch->uncontained(watch->context, faults, count);
}

/* A fault without a name is a fault as well. Without room the kernel takes the place of the last
 * named kernel. */
static void add_unknown(struct finding *finding)
{
	uint32_t i = finding->count < BACKEND_FAULTS_MAX ? finding->count++ : BACKEND_FAULTS_MAX - 1;

	finding->faults[i] = (struct backend_fault){.code = CUDA_ERROR_LAUNCH_FAILED};
}

/* Where nothing has faulted, or each fault has a name and a grid that ends, all goes on. */
static void say(const struct backend_watch *watch, struct finding *finding)
{
	bool ends = end_grids(finding);

	if (finding->unknown)
		add_unknown(finding);
	if (finding->unknown || !ends || (!finding->count && finding->excited)) {
		give_up(watch, finding->faults, finding->count);
		return;
	}
	watch->contained(watch->context, finding->faults, finding->count);
}

static bool is_stopped(void)
{
	return warps_next(exception.area, 0) < WARPS_COUNT;
}

/* Several multiprocessors may report the same fault, one after the other. */
static bool has_evidence(void)
{
	return is_stopped() || !read_states() || count_errors();
}

/* A fault with only an error state would be missed if those cannot be read, and its kernel would
 * look finished after the resume. */
static void look(void)
{
	struct finding *finding = &exception.finding;
	bool read = read_states();

	exception.is_taught = false;
	finding_look(finding, exception.area, exception.states, read ? exception.sms : 0);
	if (read || finding->unknown)
		return;
	finding->unknown = true;
	snprintf(finding->what, sizeof(finding->what), "error states cannot be read");
}

/* While the device stands still. */
static void examine(const struct backend_watch *watch)
{
	struct finding *finding = &exception.finding;

	forget_replaced();
	look();
	say(watch, finding);
	release(finding);
	clear_states();
}

/* Of the released warps: those that are back on the device, or stopped again. */
static uint32_t count_back(void)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < exception.released_count; i++)
		count += !warps_is_away(exception.area, exception.released[i]);
	return count;
}

static bool are_back(uint32_t least, uint32_t ms)
{
	const struct timespec pause = {.tv_nsec = 1000000};

	for (; count_back() < least; ms--) {
		if (!ms)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

/* A context comes back as a whole, so any of its warps proves the return. The others may be held
 * again, or be over.
 * Return: true if the context is back within the time */
static bool comes_back(uint32_t ms)
{
	if (!are_back(exception.released_count ? 1 : 0, ms))
		return false;
	are_back(exception.released_count, REST_MS);
	return true;
}

/* If another context was stopped or resumed at the same time, this context may stay in its save
 * area until another resume. Return: true if the device stood still, and goes on */
static bool go_on(bool stopped)
{
	bool goes_on = debugger_resume() && stopped;

	for (uint32_t ms = BACK_LEAST_MS; goes_on && !comes_back(ms); ms *= 2)
		goes_on = ms < BACK_MOST_MS && debugger_resume();
	return goes_on;
}

/* Once the device goes on. */
static void log_unknown(void)
{
	if (exception.finding.unknown)
		log_warning("an exception cannot be attributed to a kernel: %s", exception.finding.what);
}

/* Return: whether the device stood still, and goes on */
static bool handle_once(const struct backend_watch *watch)
{
	bool stopped = debugger_stop(), goes_on;

	watch->stopped(watch->context);
	if (stopped)
		examine(watch);
	goes_on = go_on(stopped);
	if (!goes_on) {
		give_up(watch, NULL, 0);
		log_error("the device does not stop, or does not go on, after an exception");
	}
	if (stopped)
		log_unknown();
	return goes_on;
}

/* Handles warps that fault, or are held, as soon as the device goes on. Nobody else would release
 * warps that are still held then. */
static void handle_rest(const struct backend_watch *watch)
{
	for (int rounds = 1; is_stopped(); rounds++) {
		if (rounds == ROUNDS_MAX) {
			give_up(watch, NULL, 0);
			return;
		}
		watch->suspected(watch->context);
		if (!handle_once(watch))
			return;
	}
}

static void handle(const struct backend_watch *watch)
{
	exception.ended_count = 0;
	watch->suspected(watch->context);
	if (!has_evidence())
		watch->contained(watch->context, NULL, 0);
	else if (handle_once(watch))
		handle_rest(watch);
}

void exception_handle(const struct backend_watch *watch)
{
	pthread_mutex_lock(&exception.lock);
	exception.looks = 0;
	handle(watch);
	pthread_mutex_unlock(&exception.lock);
}

/* ---- kernels that do not end ---- */

static bool is_named(const struct ending *ending, const struct backend_module *module)
{
	for (uint32_t i = 0; i < ending->module_count; i++)
		if (ending->modules[i] == module)
			return true;
	return false;
}

typedef void visit_fn(struct ending *ending, const struct code *code);

static void note_kernel(struct ending *ending, const struct code *code)
{
	if (is_named(ending, code->module))
		ending->is_there = true;
	else
		ending->others = true;
}

static void end_kernel(struct ending *ending, const struct code *code)
{
	if (!is_named(ending, code->module))
		return;
	if (!*ending->kernel)
		snprintf(ending->kernel, BACKEND_KERNEL_BYTES, "%s", code->kernel);
	if (!end_all_of(code))
		log_warning("the code of kernel %s cannot be overwritten", code->kernel);
}

/* Kernels that have a stopped warp, some of them more than once. Warps of an unknown kernel are
 * left unchanged: any program may own the kernel. */
static void each_kernel(struct ending *ending, struct finding *finding, visit_fn *visit)
{
	struct warp warp;
	struct code code;
	uint64_t task = 0; /* of the warp before */

	for (uint32_t i = warps_next(exception.area, 0); i < WARPS_COUNT;
		i = warps_next(exception.area, i + 1)) {
		if (!warps_read(exception.area, i, &warp) || warp.task == task)
			continue;
		task = warp.task;
		if (finding_kernel(finding, task, &code))
			visit(ending, &code);
	}
}

static void end_kernels(struct ending *ending, struct finding *finding)
{
	const struct backend_ending *asked = ending->asked;

	ending->modules = asked->list(asked->context, &ending->module_count);
	each_kernel(ending, finding, note_kernel);
	if (!asked->may_end || asked->may_end(asked->context, ending->others && !ending->is_there))
		each_kernel(ending, finding, end_kernel);
	free(ending->modules);
}

/* Return: whether something has faulted as well, or may have. */
static bool look_for_faults(const struct finding *finding)
{
	look();
	return finding->count || finding->unknown || finding->excited;
}

/* While the device stands still. */
static void end_and_release(const struct backend_watch *watch, struct ending *ending)
{
	struct finding *finding = &exception.finding;
	bool has_faults;

	exception.ended_count = 0;
	has_faults = look_for_faults(finding);
	if (has_faults) {
		watch->suspected(watch->context);
		watch->stopped(watch->context);
		say(watch, finding);
	}
	end_kernels(ending, finding);
	release(finding);
	if (has_faults)
		clear_states();
}

/* Return: whether the device stood still */
static bool end_once(const struct backend_watch *watch, struct ending *ending)
{
	bool stopped = debugger_stop();

	if (stopped)
		end_and_release(watch, ending);
	if (!go_on(stopped)) {
		log_error("the device does not stop, or does not go on, to look at kernels");
		return false;
	}
	log_unknown();
	handle_rest(watch);
	return true;
}

static CUresult stop_for(struct ending *ending)
{
	const struct backend_watch *watch = atomic_load_explicit(&backend_watch, memory_order_acquire);
	bool done;

	if (!exception_is_ours() || !watch)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!ending->asked)
		return CUDA_SUCCESS;
	contain_enter_thread();
	pthread_mutex_lock(&exception.lock);
	done = end_once(watch, ending);
	pthread_mutex_unlock(&exception.lock);
	return done ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult exception_end(const struct backend_ending *asked, char *ret_kernel)
{
	struct ending ending = {.asked = asked, .kernel = ret_kernel};

	*ret_kernel = '\0';
	return stop_for(&ending);
}

/* ---- the thread ---- */

static void handle_unannounced(const struct backend_watch *watch)
{
	pthread_mutex_lock(&exception.lock);
	/* Not those of a stop that has ended since. */
	if (is_stopped() && !exception.is_abandoned) {
		log_warning("warps are stopped, and no exception was announced");
		handle(watch);
	}
	pthread_mutex_unlock(&exception.lock);
}

void exception_look(const struct backend_watch *watch)
{
	exception.looks = is_stopped() ? exception.looks + 1 : 0;
	if (exception.looks < LOOKS)
		return;
	exception.looks = 0;
	handle_unannounced(watch);
}

static void *run(void *unused)
{
	struct pollfd event = {.fd = exception.event, .events = POLLIN | POLLPRI};
	const struct backend_watch *watch;
	int ready;

	contain_enter_thread();
	for (;;) {
		ready = poll(&event, 1, LOOK_MS);
		watch = atomic_load_explicit(&backend_watch, memory_order_acquire);
		if (ready > 0 && watch)
			exception_handle(watch);
		else if (!ready && watch)
			exception_look(watch);
	}
	return unused;
}

bool exception_open(uint32_t sms)
{
	exception.area = debugger_area();
	exception.sms = sms;
	if (!exception.area || sms > WARPS_SMS) {
		log_warning("exceptions are left to the driver: the place of its save area is unknown");
		return false;
	}
	if (!handler_teach(exception.area)) {
		log_warning(
			"exceptions are left to the driver: the form of its trap handler is unknown, or the "
			"handler cannot be changed");
		return false;
	}
	exception.event = debugger_event();
	if (exception.event < 0) {
		log_warning("exceptions are left to the driver: no event (%s)", strerror(-exception.event));
		return false;
	}
	if (detached_start(run, NULL, NULL)) {
		debugger_no_event(exception.event);
		exception.event = -1;
		return false;
	}
	atomic_store(&exception.is_open, true);
	return true;
}

bool exception_is_ours(void)
{
	return atomic_load_explicit(&exception.is_open, memory_order_relaxed);
}
