// See align.h.

#include "client/trace/align.h"

void align_see(struct align *align, uint64_t epoch, uint64_t host, uint64_t device)
{
	int64_t ahead = (int64_t)(device - host);

	if (align->epoch == epoch && host > align->seen) {
		align->ahead += (int64_t)((host - align->seen) / ALIGN_DRIFT);
		align->seen = host;
	}
	if (align->epoch != epoch)
		*align = (struct align){.epoch = epoch, .ahead = ahead, .seen = host};
	else if (ahead < align->ahead)
		align->ahead = ahead;
}

uint64_t align_host(const struct align *align, uint64_t device)
{
	return device - (uint64_t)align->ahead;
}
