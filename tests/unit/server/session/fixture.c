// See fixture.h.

#include "tests/unit/server/session/fixture.h"

struct fake *fake;
struct fake_child *keeper, *active, *standby;
struct fake_client client;

void boot(void)
{
	fake = fake_new(1);
	fake_boot(fake);
	keeper = &fake->children[0];
	active = &fake->children[1];
	standby = &fake->children[2];
}

void end(void)
{
	packet_close_fds(&fake->packet);
	fake_free(fake);
}

void join(void)
{
	boot();
	fake_join(fake, &client, active, standby);
}

void part(void)
{
	fake_leave(fake, &client);
	end();
}
