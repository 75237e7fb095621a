// The table of the incident: every state with every event, and what must hold of all of them.

#include <check.h>
#include <stdbool.h>

#include "server/incident/incident.h"
#include "tests/lib/suite.h"

/* A row: the states in their order, which state follows. '.': the event means nothing. Letters:
 * initials of Vacant, Starting, serVing is S… so that none is twice: v s S h H l f L t. */
static const char letters[] = "vsShHlfLt";

static const struct {
	enum incident_event event;
	const char *next;
} rows[] = {
	/*                           vsShHlfLt */
	{INCIDENT_SIGN, /*        */ ".hhhHl..h"},
	{INCIDENT_ENDLESS, /*     */ "..h......"},
	{INCIDENT_ANSWERED, /*    */ "...H.l..."},
	{INCIDENT_STUCK, /*       */ "....l...."},
	{INCIDENT_OFF_DEVICE, /*  */ ".....f..."},
	{INCIDENT_DRAINED, /*     */ "....L...."},
	{INCIDENT_TERMINATED, /*   */ ".ffFFF..f"},
	{INCIDENT_REAPED, /*      */ ".vvLLLL.L"},
	{INCIDENT_DISMISSED, /*   */ "..v......"},
	{INCIDENT_STANDBY, /*     */ "s......t."},
	{INCIDENT_ACTIVATED, /*   */ ".S......S"},
	{INCIDENT_RESUMED, /*     */ "..Shhl..."},
	{INCIDENT_RESUMED_KILLED, ".ffFFFF.f"},
	{INCIDENT_RESUMED_WITHOUT, "vvvLLLLLL"},
};

static unsigned actions_of(unsigned state, unsigned event)
{
	return incident_step((enum incident_state)state, (enum incident_event)event).actions;
}

static unsigned next_of(unsigned state, unsigned event)
{
	return incident_step((enum incident_state)state, (enum incident_event)event).next;
}

/* An F stands for fencing without anything new that is lost, an f for the same with a loss that
 * begins. */
TEST_LOOP(incident, every_event_leads_where_it_should, 0, INCIDENT_EVENTS)
{
	const char *row = rows[_i].next;

	ck_assert_int_eq((int)rows[_i].event, _i);
	for (unsigned state = 0; state < INCIDENT_STATES; state++) {
		unsigned actions = actions_of(state, (unsigned)_i), next = next_of(state, (unsigned)_i);
		char is = !actions ? '.' : letters[next];

		if (is == 'f' && !(actions & INCIDENT_BEGIN) && rows[_i].event != INCIDENT_OFF_DEVICE)
			is = 'F';
		ck_assert_msg(is == row[state], "%s, %s: %c and not %c",
			incident_state_name((enum incident_state)state), incident_event_name(rows[_i].event),
			is, row[state]);
		if (!actions)
			ck_assert_uint_eq(next, state);
	}
}

/* The states in which an executor is active. */
static bool has_active(unsigned state)
{
	return !incident_is_waiting((enum incident_state)state);
}

/* Those in which an executor was lost that has no successor which serves. */
static bool is_open(unsigned state)
{
	return state >= INCIDENT_HALTING;
}

/* For each step of the table. */
#define FOR_ALL_STEPS(state, event)                                                                          \
	for (unsigned state = 0; state < INCIDENT_STATES; state++)                                           \
		for (unsigned event = 0; event < INCIDENT_EVENTS; event++)                                   \
			if (actions_of(state, event))

TEST(incident, an_executor_is_judged_once_when_it_is_out_of_the_way)
{
	FOR_ALL_STEPS(state, event)
	{
		bool goes = has_active(state) && !has_active(next_of(state, event));

		ck_assert_int_eq(!!(actions_of(state, event) & INCIDENT_JUDGE),
			goes && event != INCIDENT_RESUMED_WITHOUT && event != INCIDENT_DISMISSED);
		ck_assert_int_eq(!!(actions_of(state, event) & INCIDENT_JUDGE),
			!!(actions_of(state, event) & INCIDENT_CHOOSE));
	}
	/* Its process may be gone at any moment, and it may be killed at any but that. */
	for (unsigned state = 0; state < INCIDENT_STATES; state++) {
		ck_assert_int_eq(!!actions_of(state, INCIDENT_REAPED), has_active(state));
		ck_assert_int_eq(!!actions_of(state, INCIDENT_TERMINATED),
			has_active(state) && state != INCIDENT_FENCING);
	}
}

TEST(incident, a_loss_begins_once)
{
	FOR_ALL_STEPS(state, event)
	{
		unsigned actions = actions_of(state, event), next = next_of(state, event);
		bool activating = incident_is_activating((enum incident_state)state);
		bool begins = has_active(next) && is_open(next) && next != INCIDENT_TAKING_OVER &&
			      (!is_open(state) || state == INCIDENT_TAKING_OVER);

		ck_assert_int_eq(!!(actions & INCIDENT_BEGIN), begins);
		ck_assert_int_eq(!!(actions & INCIDENT_NEW), begins && !is_open(state));
		ck_assert_int_eq(!!(actions & INCIDENT_FELL_SHORT),
			begins && activating && event != INCIDENT_RESUMED_KILLED);
		ck_assert_int_eq(!!(actions & INCIDENT_CUT_SHORT),
			begins && state == INCIDENT_TAKING_OVER && event != INCIDENT_RESUMED_KILLED);
	}
}

/* Nobody goes on but with an executor that has answered Activate, and what was lost is reported
 * then. */
TEST(incident, an_incident_ends_with_an_executor_that_serves)
{
	FOR_ALL_STEPS(state, event)
	{
		unsigned actions = actions_of(state, event), next = next_of(state, event);
		bool activated = event == INCIDENT_ACTIVATED;

		if (is_open(state) && !is_open(next))
			ck_assert(activated);
		ck_assert_int_eq(!!(actions & INCIDENT_SERVE), activated);
		ck_assert_int_eq(!!(actions & INCIDENT_REPORT), activated && is_open(state));
		ck_assert_int_eq(!!(actions & INCIDENT_ACTIVATE), event == INCIDENT_STANDBY);
		if (incident_is_serving((enum incident_state)next))
			ck_assert(activated || incident_is_serving((enum incident_state)state));
	}
}

/* Only an executor that issues nothing more is asked to leave the device, or replaced while it
 * lives. */
TEST(incident, nobody_is_replaced_who_may_still_write)
{
	FOR_ALL_STEPS(state, event)
	{
		unsigned actions = actions_of(state, event);

		if (actions & INCIDENT_FENCE)
			ck_assert_uint_eq(state, INCIDENT_HALTED);
		if (actions & INCIDENT_JUDGE)
			ck_assert(event == INCIDENT_REAPED ||
				  (event == INCIDENT_DRAINED && state == INCIDENT_HALTED));
	}
}

/* Whatever happens: end of the process, a standby, its answer. */
TEST_LOOP(incident, there_is_a_way_out_of_every_state, 0, INCIDENT_STATES)
{
	unsigned state = (unsigned)_i;

	if (has_active(state))
		state = next_of(state, INCIDENT_REAPED);
	ck_assert(incident_is_waiting((enum incident_state)state));
	state = next_of(next_of(state, INCIDENT_STANDBY), INCIDENT_ACTIVATED);
	ck_assert_uint_eq(state, INCIDENT_SERVING);
}

/* A step is recorded with what it has changed, and another life of the daemon begins with its
 * state. */
TEST_LOOP(incident, every_state_can_be_resumed, 0, INCIDENT_STATES)
{
	unsigned state = (unsigned)_i;
	bool open = is_open(state);

	ck_assert_int_eq(is_open(next_of(state, INCIDENT_RESUMED_WITHOUT)), open);
	ck_assert(incident_is_waiting((enum incident_state)next_of(state, INCIDENT_RESUMED_WITHOUT)));
	ck_assert_int_eq(is_open(next_of(state, INCIDENT_RESUMED)), open);
	if (has_active(state))
		ck_assert_uint_eq(next_of(state, INCIDENT_RESUMED_KILLED), INCIDENT_FENCING);
}

TEST_LOOP(incident, every_state_has_one_phase, 0, INCIDENT_STATES)
{
	enum incident_state state = (enum incident_state)_i;
	int phases = incident_is_waiting(state) + incident_is_activating(state) + incident_is_serving(state) +
		     incident_is_halting(state);

	ck_assert_int_eq(phases, state != INCIDENT_FENCING);
	ck_assert_str_ne(incident_phase_name(state), "");
	ck_assert_str_ne(incident_state_name(state), "");
}

int main(void)
{
	Suite *suite = suite_create("incident");
	TCase *tests = suite_case(suite, "incident");

	suite_add(tests, "incident");
	return suite_run(suite);
}
