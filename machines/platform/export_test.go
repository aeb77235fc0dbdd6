package platform

// UpgradeStages are the steps to another version.
var UpgradeStages = upgradeStages
