// Package etcd keeps the state of a fleet in etcd 3.5 or later: members, nodes that want a soft stop, and the slots that
// permits take. It follows the API of etcd's v3 (https://etcd.io/docs/v3.6/learning/api/). Package fleet decides; this
// package reads, grants and reports errors, and never logs.
//
// Leases are the clock. Every key but the operators' rates has a lease, and the wall clocks of nodes are never compared:
//
//	m/<zone>/<node>  a member; lease of 3 h, renewed every hour, which etcd does not write to its log. Its value marks the agent's
//	                 process: one that finds another's mark in the place of its own has a name that is used twice
//	u/<zone>/<node>  the node wants a soft stop; lease of 10 min, renewed every 3 min
//	s/<zone>         the zone's slot; its lease is the slot's length and is never renewed: expiry refills the slot
//	w/<hash>         the workload's slot, by the SHA-256 of its name; likewise
//	settling         the fleet had no members a short time ago, or etcd had lost writes; lease of 70 min, or of the longest slot
//	policy/pause     an operator has suspended soft stops, or resumed them; lease of the pause
//	policy/rates     an operator's rates; no lease
//
// All keys begin with /criguard/v1/<fleet>/. With etcd's roles, a node needs to read this prefix, and to write settling,
// w/, s/<zone>, m/<zone>/ and u/<zone>/. An operator also writes policy/ and everything that "forget" removes. etcd
// lets a user renew or revoke a lease only if it may write all keys of the lease, so a node has no power over other zones.
//
// A permit is both slots at once. It is valid from the time before its leases were requested until the shorter of them
// ends, so the node's clock can only end it early: a slot is free again no sooner than its last permit ends. Only a virtual
// machine that its host stops for a while may use one late, because its clock stands still. A change of etcd's leader extends
// all leases, which delays the next permit. A key is never deleted by its name: it may be another node's by then. Only leases
// are revoked.
//
// A call without an answer may have granted a lease, or revoke one later. The client knows the lease, because it chooses the IDs,
// and revokes it before its next report or request. An agent that finds slots with its permit's ID after a restart does not
// know what its predecessor's last call was, so it takes them again with leases of its own. So an etcd that answers late gathers
// no unused leases, and no permit has a lease that may be revoked. Only an agent that ends meanwhile leaves the leases of its last
// call behind until they expire, and so does one that does not know if it let the fleet settle: others may rely on it.
//
// An etcd that lost its data has lost the slots, too. So a node may only take a slot while etcd has its own key below u/,
// the first node that comes back puts settling, and no slot is taken before the longest lost one would have ended. The
// transaction that takes the slots checks this key, settling and policy/pause again: a node under pressure may stand still for
// a minute between its read and its transaction. The transaction that makes a node a member checks that the fleet still has
// members or settles.
//
// An etcd that is restored from a snapshot shows none of this: it has the members and the slots of that time. An operator deletes
// the fleet's keys then. Otherwise the first node notices that has seen a later revision, or another cluster, not long ago, and puts
// settling. It may come after another node that has not, or after as many new writes as were lost. The term in etcd's answers
// would show more, but a member that was sent a snapshot by its leader shows an old one.
//
// Some servers that speak this protocol are no etcd and have neither leases nor transactions of its kind, such as kine.
// They are refused.
//
// The messages are encoded here, over the gRPC that the runtime needs anyway. etcd's API package and its imports register
// all their messages when the program starts, in the root service, too: 460 KiB of allocations and 0.8 MiB of the binary,
// and an idle agent had 19.5 MiB resident instead of 17.2. etcd's client imports that package. Tests compare with it.
package etcd
